-- Counts a creation whose body broke a rule, after looking for an earlier
-- success under its idempotency key (design section 4: the same key with
-- another body is a conflict even if that body is invalid too).
-- KEYS 1 ring, 2 account, 3 idempotency record, 4 order whose external id
--   equals the key
-- ARGV 1 fingerprint, 2 key prefix {tag}
-- Replies: unknown; with a quota: limited, suspended, replayed (record),
--   key_conflict, counted
-- Repeated call: counts again.
local started = clock()
local refused, verdict, now = count_request(KEYS[1], KEYS[2], 'o', started)
if refused then return refused end
local found = redis.call('MGET', KEYS[3], KEYS[4])
local name, payload = earlier_success(found[1] or nil, found[2] or nil, ARGV[1], started, ARGV[2])
return reply(name or 'counted', verdict, now, payload)
