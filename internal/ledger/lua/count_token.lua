-- Verifies a client secret by its hash and counts the token, together. The
-- hashes are of 32 random bytes, so comparing them leaks nothing of use.
-- KEYS 1 ring, 2 account
-- ARGV 1 SHA-256 of the secret
-- Replies: unknown and wrong_secret (nothing counted); with a quota: limited,
--   suspended, counted
-- Repeated call: counts again.
local started = clock()
local known = call('HMGET', KEYS[2], 'secret', 'old_secret', 'old_until')
if not known[1] then return 'unknown' end
local current = known[1] == ARGV[1]
local previous = known[2] == ARGV[1] and started / 1000 < tonumber(known[3] or 0)
if not current and not previous then return 'wrong_secret' end
return count_request(KEYS[1], started) or reply('counted')
