-- Lists ARGV[1] orders that are gone as having ended ten days ago. Retiring passes over such orders,
-- and takes them off the list.
local hour = string.format('%d', redis.call('TIME')[1] / 3600 - 240)
local keys = owners()
for i, key in ipairs(keys) do
  local prefix = string.sub(key, 1, -2)
  for n = i, ARGV[1], #keys do redis.call('RPUSH', prefix .. 'R' .. hour, string.format('%014d', n)) end
  redis.call('ZADD', prefix .. 'H', hour, hour)
end
return #keys
