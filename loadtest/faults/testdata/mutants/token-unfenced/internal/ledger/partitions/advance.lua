-- Whoever owns the partition, the caller counts as its owner.
local stored = call('GET', KEYS[1]) or ''
if stored ~= ARGV[2] then ARGV[1] = stored end
return original(KEYS, ARGV)
