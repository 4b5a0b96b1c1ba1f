-- Lists ARGV[1] orders that are gone as having ended ten days ago. Retiring passes over such orders,
-- and takes them off the list.
local hour = string.format('%d', redis.call('TIME')[1] / 3600 - 240)
local owners = {}
for _, key in ipairs(redis.call('KEYS', '*}O')) do
  if string.match(key, '^{[^}]+}O$') then owners[#owners + 1] = key end -- other keys end in any bytes
end
for i, key in ipairs(owners) do
  local prefix = string.sub(key, 1, -2)
  for n = i, ARGV[1], #owners do redis.call('RPUSH', prefix .. 'R' .. hour, string.format('%014d', n)) end
  redis.call('ZADD', prefix .. 'H', hour, hour)
end
return #owners
