-- Stores how many couriers a fleet has, and raises the version that every gateway
-- polls; the last call wins. The same number again changes nothing.
-- KEYS 1 fleets_couriers, 2 meta, 3 fleets_versions
-- ARGV 1 fleet (16 bytes), 2 couriers
-- Replies: written, unchanged, missing (no such fleet)
-- Repeated call: answers unchanged, unless another number was stored in between; then
--   it stores its own again.
if not call('HGET', KEYS[3], ARGV[1]) then return 'missing' end
if call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then return 'unchanged' end
call('HSET', KEYS[1], ARGV[1], ARGV[2])
call('HINCRBY', KEYS[2], 'fleets', 1)
return 'written'
