#!lua flags=allow-oom
-- Moves an entry out of a group's way, to the dead letters, and acknowledges it.
-- KEYS 1 the stream it came from, 2 the dead letters
-- ARGV 1 consumer group, 2 stream id, 3 most dead letters kept, 4... fields and values
-- Reply: 1 when it was still to be acknowledged, 0 when it was settled before
--   (then nothing is written)
-- Repeated call: answers 0.
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, 4))
return 1
