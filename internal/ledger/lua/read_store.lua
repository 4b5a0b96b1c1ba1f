-- Counts a request in the stores bucket and reads a store.
-- KEYS 1 ring, 2 account, 3 store
-- Replies: unknown; with a quota: limited, suspended, found (record, empty when
--   there is none)
-- Repeated call: counts again.
local refused, verdict, now = count_request(KEYS[1], KEYS[2], 'p', clock())
return refused or reply('found', verdict, now, redis.call('GET', KEYS[3]) or '')
