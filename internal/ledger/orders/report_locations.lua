-- Keeps the newest position of each courier's order.
-- KEYS orders
-- ARGV 1 fleet (16 bytes), 2 now in ms, then for each order its day (2 bytes)
--   and its location (24 bytes: latitude, longitude, time in ms)
-- Reply: how many were kept; unknown, ended and other fleets' orders are not,
--   nor is a position older than the one known.
-- Repeated call: keeps the same positions again.
local kept = 0
for i, key in ipairs(KEYS) do
  local head, place = order_head(key), ARGV[2 + i]
  if head ~= '' and order_fleet(head) == ARGV[1] and order_day(head) == sub(place, 1, 2)
    and order_status(head) < DELIVERED and sub(head, 111, 118) <= sub(place, 19, 26) then
    call('SETRANGE', key, 94, sub(place, 3))
    call('SETRANGE', key, 44, pack('>I8', tonumber(ARGV[2])))
    kept = kept + 1
  end
end
return kept
