-- Each change expects the version that its order has.
local change = 9 + 4 * tonumber(ARGV[5])
for _ = 1, tonumber(ARGV[6]) do
  ARGV[change + 1] = call('GETRANGE', ARGV[change], 4, 11)
  change = change + 5
end
return original(KEYS, ARGV)
