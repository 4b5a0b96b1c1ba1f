-- Publishes events that belong to no order.
-- KEYS 1 events
-- ARGV 1 key prefix {tag}, 2 lifetime of a notice in ms, then pairs: event id,
--   notice (account at 1)
-- Reply: how many.
-- Repeated call: what has an id that is known was published and stays as it is.
for i = 3, #ARGV, 2 do
  if call('SET', ARGV[1] .. 'n' .. ARGV[i], ARGV[i + 1], 'PX', ARGV[2], 'NX') then
    local id = call('XADD', KEYS[1], '*', 'e', '\2' .. ARGV[i])
    index_events(ARGV[1], sub(ARGV[i + 1], 2, 17), id, 'e', '\2' .. ARGV[i])
  end
end
return (#ARGV - 2) / 2
