-- The keys of the partitions' owners. Other keys end in any bytes.
local function owners()
  local found = {}
  for _, key in ipairs(redis.call('KEYS', '*}O')) do
    if string.match(key, '^{[^}]+}O$') then found[#found + 1] = key end
  end
  return found
end
