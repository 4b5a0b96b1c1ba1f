-- Looks for an earlier success under an idempotency key. record is the key's
-- own record, if any: fingerprint (16 bytes), digest of the order (12), day (2).
-- same is the order whose external id equals the key, if any: it counts when it
-- was created under that key within the last 24 hours (it then needed no record
-- of its own). near is any key of the partition. Returns nothing, or 'replayed'
-- and the order, or 'key_conflict'.
local KEY_LIFETIME = 86400000

local function earlier_success(record, same, fingerprint, now, near)
  if record then
    if sub(record, 1, 16) ~= fingerprint then return 'key_conflict' end
    local order = call('GET', string.match(near, '^{.-}') .. 'o' .. sub(record, 17, 28))
    if order then return 'replayed', order end
    return nil
  end
  if not same or byte(same, 4) % 2 == 0 then return nil end
  local created = parse('>I8', sub(same, 29, 36))
  if now / 1000 - created >= KEY_LIFETIME then return nil end
  if sub(same, 61, 76) ~= fingerprint then return 'key_conflict' end
  return 'replayed', same
end
