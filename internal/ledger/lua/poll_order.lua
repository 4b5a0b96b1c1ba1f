-- Reads an order for its vendor (GET /orders/{id}), at most once per interval.
-- KEYS 1 ring, 2 account, 3 order
-- ARGV 1 account (16 bytes), 2 day (2 bytes), 3 interval in microseconds
-- Replies: unknown; with a quota: limited, suspended, polled_too_soon (the
--   quota is the order's own limit, nothing counted), not_found, found (record)
-- Repeated call: the poll counts as made; it is refused like a second one.
local now = clock()
local ring = read_ring(KEYS[1], KEYS[2], 's')
if not ring then return 'unknown' end
local verdict = judge(ring, now)
if verdict.remaining < 0 then return reply('limited', verdict, ring.now) end

local order = redis.call('GET', KEYS[3])
if order and (order_account(order) ~= ARGV[1] or order_day(order) ~= ARGV[2]) then order = false end
if order and not suspended(ring) then
  local polled, interval = struct.unpack('>I8', string.sub(order, 37, 44)), tonumber(ARGV[3])
  -- A poll in the future was made before the clock went back; it is forgotten.
  if polled <= now + 1000000 and now - polled < interval then
    return reply('polled_too_soon', {limit = 1, remaining = -1, grows = polled + interval}, now)
  end
  redis.call('SETRANGE', KEYS[3], 36, struct.pack('>I8', now))
end
admit(ring)
if suspended(ring) then return reply('suspended', verdict, ring.now) end
if not order then return reply('not_found', verdict, ring.now) end
return reply('found', verdict, ring.now, order)
