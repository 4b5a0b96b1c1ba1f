-- Stores a fleet's record and controls if nobody changed them in between, and raises
-- the version that every gateway polls; with a new record, the record's own, too, by
-- which gateways know that they must read it.
-- KEYS 1 fleets_versions, 2 meta, 3 fleets, 4 fleets_controls; of a new fleet
--   5 fleets_secrets, 6 fleets_couriers
-- ARGV 1 fleet (16 bytes), 2 expected version ('' for a new fleet), 3 expected
--   controls, 4 controls, 5 record ('': stays as it is); of a new fleet 6 client
--   secrets, 7 couriers ('': it never reported)
-- Replies: written, conflict
-- Repeated call: of a creation answers written; of an update answers conflict,
--   and the caller applies its change once more to what it finds.
local fleet = ARGV[1]
local version = call('HGET', KEYS[1], fleet) or ''
local created = ARGV[2] == '' and version ~= ''
if created and call('HGET', KEYS[3], fleet) == ARGV[5] then return 'written' end
local controls = call('HGET', KEYS[4], fleet) or ''
if version ~= ARGV[2] or controls ~= ARGV[3] then return 'conflict' end
local raised = call('HINCRBY', KEYS[2], 'fleets', 1)
if ARGV[5] ~= '' then
  call('HSET', KEYS[3], fleet, ARGV[5])
  call('HSET', KEYS[1], fleet, format('%.0f', raised))
end
call('HSET', KEYS[4], fleet, ARGV[4])
if KEYS[5] then
  call('HSET', KEYS[5], fleet, ARGV[6])
  if ARGV[7] ~= '' then call('HSET', KEYS[6], fleet, ARGV[7]) end
end
return 'written'
