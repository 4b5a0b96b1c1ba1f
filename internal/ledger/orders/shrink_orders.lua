-- Shrinks orders that ended long ago to what is still read of them (codec.shrunk in record.go).
-- KEYS 1 how far this has got
-- ARGV 1 how far it has got after this call, then for each order: its key, its version
--   (8 bytes), what it keeps besides its head (28 bytes at least)
-- Reply: how many were shrunk. One that is gone, shrunk already, or no more as it was read
--   stays as it is; what gateways have noted in the head since then stays, too.
-- Repeated call: shrinks none.
local KEPT_IN_HEAD = 28 -- what stands in the head in the place of location and length

local shrunk = 0
for i = 2, #ARGV, 3 do
  local head, kept = order_head(ARGV[i]), ARGV[i + 2]
  if byte(head) == 1 and sub(head, ORDER_VERSION_FIRST, ORDER_VERSION_LAST) == ARGV[i + 1] then
    call('SET', ARGV[i], '\2' .. sub(head, ORDER_STATUS, ORDER_DAY_LAST) .. sub(kept, 1, KEPT_IN_HEAD) .. order_fleet(head)
      .. sub(kept, KEPT_IN_HEAD + 1))
    shrunk = shrunk + 1
  end
end

call('SET', KEYS[1], ARGV[1])
return shrunk
