-- Queues events again for one endpoint.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3... items
-- Replies: queued, no_endpoint
-- Repeated call: the events are sent once more.
local e = open_queue(ARGV[1], ARGV[2], clock())
if not e.url then return 'no_endpoint' end
call('RPUSH', e.q, unpack(ARGV, 3))
look_at(e, e.now)
return 'queued'
