-- Stores a fleet if nobody changed it in between, and raises the version that
-- every gateway polls.
-- KEYS 1 fleets, 2 meta; of a new client secret 3 fleet_secrets, 4 revoked
-- ARGV 1 fleet (16 bytes), 2 expected record ('' for a new fleet), 3 record; of a
--   new client secret 4 the earlier ones besides the record's, 5 '1': tokens that
--   were issued before end, then 6 the present by the caller's clock in s
-- Replies: written, conflict
-- Repeated call: of a creation answers written; of an update answers conflict,
--   and the caller applies its change once more to what it finds.
local before = call('HGET', KEYS[1], ARGV[1]) or ''
if ARGV[2] == '' and before == ARGV[3] then return 'written' end
if before ~= ARGV[2] then return 'conflict' end
call('HSET', KEYS[1], ARGV[1], ARGV[3])
call('HINCRBY', KEYS[2], 'fleets', 1)
if KEYS[3] then call('HSET', KEYS[3], ARGV[1], ARGV[4]) end
if ARGV[5] == '1' then
  local now = clock() / 1000000
  revoke_tokens(KEYS[4], KEYS[2], ARGV[1], max(floor(now), tonumber(ARGV[6])) + 1, now)
end
return 'written'
