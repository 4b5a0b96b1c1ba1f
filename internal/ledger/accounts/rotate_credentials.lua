-- Gives an account a new client secret.
-- KEYS 1 account
-- ARGV 1 SHA-256 of the secret, 2 for how long the one before still works, in ms,
--   3 '1': the earlier ones end now, and so do tokens issued before
-- Replies: missing, full (too many earlier secrets still work); else, with a line feed
--   between, from when on the account's tokens are good, Unix seconds ('0': always),
--   and until when the secret before works, in ms
-- Repeated call: recognized by the secret; nothing is changed, and the reply is the same.
local now = clock()
local now_ms = floor(now / 1000)
if call('EXISTS', KEYS[1]) == 0 then return 'missing' end
local done = rotate_secret(KEYS[1], now_ms, ARGV[1], now_ms + tonumber(ARGV[2]), ARGV[3] == '1')
if done == 'full' then return done end
if done == 'written' then
  call('HINCRBY', KEYS[1], 'revision', 1)
  if ARGV[3] == '1' then
    call('HSET', KEYS[1], 'not_before', format('%d', good_from(now / 1000000)))
  end
end

local known = call('HMGET', KEYS[1], 'not_before', 'earlier')
local not_before, earlier = known[1] or '0', known[2]
local ends = now_ms
if earlier then ends = parse('>I6', earlier) end
return not_before .. '\n' .. format('%.0f', ends)
