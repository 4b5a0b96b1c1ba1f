-- Publishes events that belong to no order.
-- KEYS 1 events
-- ARGV 1 key prefix {tag}, 2 lifetime of a notice in ms, then pairs: event id,
--   notice
-- Reply: how many.
-- Repeated call: the event is in the stream twice under one id; receivers
--   deduplicate on it.
for i = 3, #ARGV, 2 do
  call('SET', ARGV[1] .. 'n' .. ARGV[i], ARGV[i + 1], 'PX', ARGV[2])
  call('XADD', KEYS[1], '*', 'e', '\2' .. ARGV[i])
end
return (#ARGV - 2) / 2
