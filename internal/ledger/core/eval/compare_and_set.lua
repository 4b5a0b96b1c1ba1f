-- Puts a value in the place of an expected one.
--
-- KEYS[1]  the key
-- ARGV[1]  the value that is expected; empty: the key does not exist
-- ARGV[2]  the value to set; empty: the key is removed
-- ARGV[3]  how long the new value lasts, in milliseconds; 0: for ever
-- ARGV[4]  when the caller decided, by Redis's clock, in milliseconds since 1970; 0: it does not matter
-- ARGV[5]  how far that may be from Redis's clock now, in milliseconds
--
-- Reply: "set"; "late" when the caller decided too long ago, or in the future; else "=" and the value that
-- is there. A repeated call gets "=" and its own value, so its caller knows that it was done.
local current = redis.call('GET', KEYS[1]) or ''
if current ~= ARGV[1] then return '=' .. current end

local decided_at = tonumber(ARGV[4])
if decided_at > 0 then
	local clock = redis.call('TIME')
	local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
	if math.abs(now - decided_at) > tonumber(ARGV[5]) then return 'late' end
end

if ARGV[2] == '' then
	redis.call('DEL', KEYS[1])
elseif ARGV[3] == '0' then
	redis.call('SET', KEYS[1], ARGV[2])
else
	redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 'set'
