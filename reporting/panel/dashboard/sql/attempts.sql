SELECT event_id, at, state, attempt, http_status, error, milliseconds, replay, probe FROM webhook_outcomes
PREWHERE account_id = {account:UUID} AND day BETWEEN {from:Date} AND {to:Date} AND event_id IN {events:Array(String)}
ORDER BY at DESC LIMIT 500
