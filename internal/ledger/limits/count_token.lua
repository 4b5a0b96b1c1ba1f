-- Verifies a client secret by its hash and counts the token, together. The
-- hashes are of 32 random bytes, so comparing them leaks nothing of use.
-- KEYS 1 windows, 2 account
-- ARGV 1 SHA-256 of the secret
-- Replies: unknown and wrong_secret (nothing counted); with a quota: limited,
--   suspended, counted and from when on the account's tokens are good (6 bytes, Unix
--   seconds), then 1 if the secret was replaced and works for a while yet, else 0
-- Repeated call: counts again.
local started = clock()
local known = call('HMGET', KEYS[2], 'secret', 'earlier', 'not_before')
if not known[1] then return 'unknown' end
local right = known[1] == ARGV[1]
for _, earlier in ipairs(earlier_secrets(started / 1000, known[2])) do
  right = right or earlier[2] == ARGV[1]
end
if not right then return 'wrong_secret' end
return count_request(KEYS[1], started) or
  reply('counted', pack('>I6B', tonumber(known[3] or 0), known[1] == ARGV[1] and 0 or 1))
