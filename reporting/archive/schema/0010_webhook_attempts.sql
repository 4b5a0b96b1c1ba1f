-- Attempts that failed and are repeated have rows, too.
ALTER TABLE {{local "webhook_outcomes"}} {{onCluster}} COMMENT COLUMN state 'how the event ended: delivered, undelivered or notSent; or retrying: an attempt that failed and was not the last',
    COMMENT COLUMN attempt 'its number; 0 without any; of a probe that failed, which is no attempt of the event''s own, that of the next one',
    COMMENT COLUMN probe 'sent ahead of the schedule to see whether the receiver is back';

{{if onCluster}}
ALTER TABLE webhook_outcomes {{onCluster}} COMMENT COLUMN state 'how the event ended: delivered, undelivered or notSent; or retrying: an attempt that failed and was not the last',
    COMMENT COLUMN attempt 'its number; 0 without any; of a probe that failed, which is no attempt of the event''s own, that of the next one',
    COMMENT COLUMN probe 'sent ahead of the schedule to see whether the receiver is back';
{{end}}
