-- Puts new orders on their fleets' job lists and sets their first timer, then
-- acknowledges the creation events.
-- KEYS 1 events
-- ARGV 1 key prefix {tag}, 2 consumer group, 3 timeout in ms (the earliest
--   time after creation at which any timer can be due), then pairs: stream id,
--   order member ('' for an event that concerns no creation)
-- Reply: how many were put on a list. An order that has moved on keeps the
--   lists that its commit made.
-- Repeated call: sets the same members again.
local added, ids = 0, {}
for i = 4, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
  local member = ARGV[i + 1]
  if member ~= '' then
    local head = order_head(ARGV[1] .. 'o' .. sub(member, 1, 12))
    if head ~= '' and order_status(head) == 1 and order_day(head) == sub(member, 13, 14) then
      local created = parse('>I8', sub(head, 29, 36))
      call('ZADD', ARGV[1] .. 'j\1' .. order_fleet(head), created, member)
      call('ZADD', ARGV[1] .. 't', 'NX', created + tonumber(ARGV[3]), member)
      added = added + 1
    end
  end
end
in_parts(ids, 1, function(...) call('XACK', KEYS[1], ARGV[2], ...) end)
return added
