-- Stores a fleet's client secrets if nobody changed them in between, and raises the
-- version that every gateway polls; at will it ends the tokens that were issued before.
-- KEYS 1 fleets_secrets, 2 meta, 3 revoked
-- ARGV 1 fleet (16 bytes), 2 expected secrets, 3 secrets, 4 '1': tokens that were
--   issued before end
-- Replies: written, conflict
-- Repeated call: answers conflict, and the caller finds its secret stored.
if call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'conflict' end
call('HSET', KEYS[1], ARGV[1], ARGV[3])
call('HINCRBY', KEYS[2], 'fleets', 1)
if ARGV[4] == '1' then
  local now = clock() / 1000000
  revoke_tokens(KEYS[3], KEYS[2], ARGV[1], good_from(now), now)
end
return 'written'
