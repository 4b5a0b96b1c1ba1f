-- Moves an entry out of a group's way: to the refused updates or to the dead
-- letters, and acknowledges it.
-- KEYS 1 the stream it came from, 2 where its trace goes, 3 events
-- ARGV 1 consumer group, 2 stream id, 3 most traces kept, 4 an event that tells
--   of it ('': none), 5... fields and values
-- Reply: 1 when it was still to be acknowledged, 0 when it was settled before
--   (then nothing is written)
-- Repeated call: answers 0.
if call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, 5))
if ARGV[4] ~= '' then call('XADD', KEYS[3], '*', 'e', ARGV[4]) end
return 1
