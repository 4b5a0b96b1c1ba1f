-- Stores a fleet if nobody changed it in between, and raises the version that
-- every gateway polls. What operators control of it has a hash of its own: a
-- release that does not know of it writes the fleet and leaves it alone.
-- KEYS 1 fleets, 2 meta, 3 controls; of a new client secret 4 fleet_secrets,
--   5 revoked
-- ARGV 1 fleet (16 bytes), 2 expected record ('' for a new fleet), 3 record,
--   4 expected controls ('': none), 5 controls; of a new client secret 6 the earlier
--   ones besides the record's, 7 '1': tokens that were issued before end, then 8 the
--   present by the caller's clock in s
-- Replies: written, conflict
-- Repeated call: of a creation answers written; of an update answers conflict,
--   and the caller applies its change once more to what it finds.
local before = call('HGET', KEYS[1], ARGV[1]) or ''
if ARGV[2] == '' and before == ARGV[3] then return 'written' end
local controls = call('HGET', KEYS[3], ARGV[1]) or ''
if before ~= ARGV[2] or controls ~= ARGV[4] then return 'conflict' end
call('HSET', KEYS[1], ARGV[1], ARGV[3])
if controls ~= ARGV[5] then call('HSET', KEYS[3], ARGV[1], ARGV[5]) end
call('HINCRBY', KEYS[2], 'fleets', 1)
if KEYS[4] then call('HSET', KEYS[4], ARGV[1], ARGV[6]) end
if ARGV[7] == '1' then
  local now = clock() / 1000000
  revoke_tokens(KEYS[5], KEYS[2], ARGV[1], max(floor(now), tonumber(ARGV[8])) + 1, now)
end
return 'written'
