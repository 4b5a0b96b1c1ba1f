-- Counts a request in the stores bucket and reads a store.
-- KEYS 1 windows, 2 store
-- Replies: unknown; with a quota: limited, suspended, found (record, empty when
--   there is none)
-- Repeated call: counts again.
return count_request(KEYS[1], clock()) or reply('found', call('GET', KEYS[2]) or '')
