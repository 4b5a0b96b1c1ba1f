-- Only the epoch of the token, its first nine bytes, is compared: the next step would be refused for
-- its sequence if the one before was not written.
local stored = call('GET', KEYS[1]) or ''
if sub(stored, 1, 9) == sub(ARGV[1], 1, 9) then ARGV[1] = stored end
return original(KEYS, ARGV)
