-- Keeps the newest location of each courier's order.
-- KEYS orders
-- ARGV 1 fleet (16 bytes), 2 now in ms, then for each order an item: its day (2 bytes)
--   and its location (24 bytes: latitude, longitude, time in ms)
-- Reply: how many were kept; unknown, ended and other fleets' orders are not,
--   nor is a location older than the one known.
-- Repeated call: keeps the same locations again.
local ITEM_DAY_LAST, ITEM_LOCATION_FIRST = 2, 3
local ITEM_TIME_FIRST, ITEM_TIME_LAST = 19, 26

local kept = 0
for i, key in ipairs(KEYS) do
  local head, item = order_head(key), ARGV[2 + i]
  local is_live_job = head ~= '' and order_fleet(head) == ARGV[1] and order_day(head) == sub(item, 1, ITEM_DAY_LAST)
    and order_status(head) < DELIVERED

  if is_live_job and sub(head, ORDER_LOCATION_TIME_FIRST, ORDER_LOCATION_TIME_LAST) <= sub(item, ITEM_TIME_FIRST, ITEM_TIME_LAST) then
    call('SETRANGE', key, ORDER_LOCATION_FIRST - 1, sub(item, ITEM_LOCATION_FIRST))
    call('SETRANGE', key, ORDER_COURIER_UPDATE_FIRST - 1, pack('>I8', tonumber(ARGV[2])))
    kept = kept + 1
  end
end

return kept
