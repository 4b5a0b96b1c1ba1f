-- Adds one process's counts to those of a minute, once.
-- KEYS 1 the minute's activity
-- ARGV 1 field of the process, 2 the number of this addition, which grows with
--   every one of the process's, 3 lifetime in seconds, then pairs: field, amount
-- Reply: 1; 0 when this addition is already in it
-- Repeated call: answers 0.
if tonumber(call('HGET', KEYS[1], ARGV[1]) or 0) >= tonumber(ARGV[2]) then return 0 end
call('HSET', KEYS[1], ARGV[1], ARGV[2])
for i = 4, #ARGV, 2 do call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
call('EXPIRE', KEYS[1], ARGV[3])
return 1
