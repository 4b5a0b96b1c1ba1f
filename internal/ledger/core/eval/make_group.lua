#!lua flags=allow-oom
-- Makes a consumer group, and its stream, unless they are there.
-- KEYS 1 stream
-- ARGV 1 consumer group, which begins with the oldest entry
-- Reply: 1; 0 when the group was there
-- Repeated call: answers 0.
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
if not made.err then return 1 end
if string.find(made.err, 'BUSYGROUP', 1, true) then return 0 end
return made
