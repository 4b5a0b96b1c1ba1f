-- Queues events again for one endpoint.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 now in ms, 4... items
-- Replies: queued, no_endpoint
-- Repeated call: the events are sent once more.
if call('HEXISTS', KEYS[1], 'url') == 0 then return 'no_endpoint' end
call('RPUSH', ARGV[1] .. 'q' .. ARGV[2], unpack(ARGV, 4))
reschedule(ARGV[1], ARGV[2], tonumber(ARGV[3]))
return 'queued'
