-- Stores a fleet if nobody changed it in between, and raises the version that
-- every gateway polls.
-- KEYS 1 fleets, 2 meta
-- ARGV 1 fleet (16 bytes), 2 expected record ('' for a new fleet), 3 record
-- Replies: written, conflict
-- Repeated call: of a creation answers written; of an update answers conflict,
--   and the caller applies its change once more to what it finds.
local before = call('HGET', KEYS[1], ARGV[1]) or ''
if ARGV[2] == '' and before == ARGV[3] then return 'written' end
if before ~= ARGV[2] then return 'conflict' end
call('HSET', KEYS[1], ARGV[1], ARGV[3])
call('HINCRBY', KEYS[2], 'fleets', 1)
return 'written'
