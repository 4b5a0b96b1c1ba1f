-- Counts the orders of a partition that are kept.
-- KEYS 1 hours in which orders ended, 2 timers
-- ARGV 1 key prefix {tag}
-- Replies: how many have not ended, how many have ended, and the first hour in which one of these
--   did ('': none has)
-- Repeated call: counts again.
local hours, ended = call('ZRANGE', KEYS[1], 0, -1), 0
for _, hour in ipairs(hours) do ended = ended + call('LLEN', ARGV[1] .. 'R' .. hour) end
return {call('ZCARD', KEYS[2]), ended, hours[1] or ''}
