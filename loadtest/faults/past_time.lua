-- Counts what is left of what fill_memory.lua has written. The last entry that a group has read stays.
-- ARGV 1 the account

local left = 0
local now = tonumber(redis.call('TIME')[1])
for _, key in ipairs(owners()) do
  local prefix = string.sub(key, 1, -2)
  for _, hour in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'H', '-inf', now / 3600 - 200)) do
    left = left + redis.call('LLEN', prefix .. 'R' .. hour)
  end
  left = left + redis.call('XLEN', prefix .. 'E' .. ARGV[1]) + math.max(redis.call('XLEN', prefix .. 'V') - 1, 0)
end
return left
