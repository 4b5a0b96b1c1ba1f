-- Gives an account a new client secret.
-- KEYS 1 account
-- ARGV 1 SHA-256 of the secret, 2 end of the validity of the one before in ms,
--   3 '1': the earlier ones end now, and so do tokens issued before; then 4 the
--   present by the caller's clock in s
-- Replies: missing, full (too many earlier secrets still work); else from when on
--   the account's tokens are good, Unix seconds ('0': always)
-- Repeated call: recognized by the secret; nothing is changed, and the reply is the same.
local now = clock()
if call('EXISTS', KEYS[1]) == 0 then return 'missing' end
local done = rotate_secret(KEYS[1], now / 1000, ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1')
if done == 'full' then return done end
if done == 'written' then
  call('HINCRBY', KEYS[1], 'revision', 1)
  if ARGV[3] == '1' then
    -- Whole seconds, as tokens have: one of this second was issued before.
    call('HSET', KEYS[1], 'not_before', format('%d', max(floor(now / 1000000), tonumber(ARGV[4])) + 1))
  end
end
return call('HGET', KEYS[1], 'not_before') or '0'
