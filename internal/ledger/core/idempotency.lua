-- Looks for an earlier success under an idempotency key. record is the key's
-- own record, if any: fingerprint (16 bytes), digest of the order (12), day (2).
-- same is the order whose external id equals the key, if any: it counts when it
-- was created under that key within the last 24 hours (it then needed no record
-- of its own). near is any key of the partition. Returns nothing, or 'replayed'
-- and the order, or 'key_conflict'.
local KEY_LIFETIME = 86400000 -- ms

-- The idempotency record, positions from 1.
local KEY_FINGERPRINT_LAST = 16
local KEY_DIGEST_FIRST, KEY_DIGEST_LAST = 17, 28

local function earlier_success(record, same, fingerprint, now, near)
  if record then
    if sub(record, 1, KEY_FINGERPRINT_LAST) ~= fingerprint then return 'key_conflict' end
    local order = call('GET', string.match(near, '^{.-}') .. 'o' .. sub(record, KEY_DIGEST_FIRST, KEY_DIGEST_LAST))
    if order then return 'replayed', order end
    return nil
  end

  if not same or byte(same, ORDER_FLAGS) % 2 == 0 then return nil end
  local created = order_created(same)
  if now / 1000 - created >= KEY_LIFETIME then return nil end
  if sub(same, ORDER_FINGERPRINT_FIRST, ORDER_FINGERPRINT_LAST) ~= fingerprint then return 'key_conflict' end
  return 'replayed', same
end
