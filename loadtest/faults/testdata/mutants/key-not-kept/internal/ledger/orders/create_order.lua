-- The idempotency key is forgotten at once.
local answer = original(KEYS, ARGV)
if KEYS[7] then call('DEL', KEYS[6]) end
return answer
