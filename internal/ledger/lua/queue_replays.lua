-- Queues events again for one endpoint: each that waits already, in whatever way,
-- stays where it is, and one that waits for its next attempt is due now.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 most notices and replays that may wait,
--   4... items
-- Replies: queued, full (there would be more: nothing was queued), no_endpoint
-- Repeated call: all of them wait.
local e = open_queue(ARGV[1], ARGV[2], clock())
if not e.url then return 'no_endpoint' end
-- An older release has no b: what it settled would wait there for ever.
if call('LLEN', e.q) + call('ZCARD', e.d) + call('ZCARD', e.k) == 0 then call('DEL', e.b) end

local function waits(first)
  if byte(first, 1) == 1 then
    local head = order_head(e.prefix .. 'o' .. sub(first, 2, 13))
    if head ~= '' and order_day(head) == sub(first, 14, 15) then
      local queued, attempted = parse('>I4I4', head, 21)
      -- The end of each first attempt queues the next version, up to this one.
      if queued > attempted and parse('>I4', first, 16) > attempted then return true end
    end
  end
  local known = call('HGET', e.b, first)
  local item = known or first
  if call('ZSCORE', e.d, item) then
    call('ZADD', e.d, 'LT', e.now, item)
    return true
  end
  return known or call('ZSCORE', e.k, item)
end

local fresh, kept, named = {}, {}, {}
for i = 4, #ARGV do
  local first = first_item(ARGV[i])
  if not named[first] and not waits(first) then
    fresh[#fresh + 1] = ARGV[i]
    kept[#kept + 1], kept[#kept + 2] = first, ARGV[i]
  end
  named[first] = true
end
if #fresh > 0 then
  if call('HLEN', e.b) + #fresh > tonumber(ARGV[3]) then return 'full' end
  call('HSET', e.b, unpack(kept))
  call('RPUSH', e.q, unpack(fresh))
end
look_at(e, e.now)
return 'queued'
