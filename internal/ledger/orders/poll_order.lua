-- Reads an order for its vendor (GET /orders/{id}), at most once per interval.
-- KEYS 1 windows, 2 order
-- ARGV 1 account (16 bytes), 2 day (2 bytes), 3 interval in microseconds
-- Replies: unknown; with a quota: limited, suspended, polled_too_soon (the
--   quota is the order's own limit, nothing counted), not_found, found (record)
-- Repeated call: the poll counts as made; it is refused like a second one.
local now = clock()
local found = call('MGET', KEYS[1], KEYS[2])
if not open_windows(KEYS[1], found[1]) then return 'unknown' end
if not check_limits(now) then return reply('limited') end

local order = found[2]
if order and (order_account(order) ~= ARGV[1] or order_day(order) ~= ARGV[2]) then order = false end
if order and not suspended() then
  local polled, interval = parse('>I8', sub(order, ORDER_POLLED_FIRST, ORDER_POLLED_LAST)), tonumber(ARGV[3])
  -- A poll in the future was made before the clock went back; it is forgotten.
  if polled <= now + 1000000 and now - polled < interval then
    limit, window, remaining, grows, decided = 1, interval / 1000000, -1, polled + interval, now
    return reply('polled_too_soon')
  end
  call('SETRANGE', KEYS[2], ORDER_POLLED_FIRST - 1, pack('>I8', now))
end

record_request()
if suspended() then return reply_counted('suspended') end
if not order then return reply_counted('not_found') end
return reply_counted('found', order)
