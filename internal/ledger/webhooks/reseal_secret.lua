-- Replaces a sealed webhook secret by the same one sealed with another key.
-- KEYS 1 endpoint
-- ARGV 1 field: secret or earlier, 2 its value as it was read, 3 the new one
-- Replies: written, conflict (it has changed since it was read)
-- Repeated call: conflict, and nothing is changed.
if call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 'conflict' end
call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 'written'
