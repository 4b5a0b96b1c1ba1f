-- Counts a creation whose body broke a rule, after looking for an earlier
-- success under its idempotency key (decisions, "Limits and idempotency": the same key with
-- another body is a conflict even if that body is invalid too).
-- KEYS 1 windows, 2 idempotency record, 3 order whose external id equals
--   the key
-- ARGV 1 fingerprint
-- Replies: unknown; with a quota: limited, suspended, replayed (record),
--   key_conflict, counted
-- Repeated call: counts again.
local started = clock()
local refused = count_request(KEYS[1], started)
if refused then return refused end
local found = call('MGET', KEYS[2], KEYS[3])
local name, payload = earlier_success(found[1] or nil, found[2] or nil, ARGV[1], started, KEYS[1])
return reply(name or 'counted', payload)
