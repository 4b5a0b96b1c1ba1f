-- Whoever accepts finds the job free.
local function order_courier(order, entry)
  local whose = order_courier_original(order, entry)
  if whose == 'other' then return 'none' end
  return whose
end
