-- Removes orders that ended in one hour and remembers their external ids.
-- KEYS 1 list of that hour, 2 hours
-- ARGV 1 key prefix {tag}, 2 hour, 3 most to retire, 4 bits of a bucket's number
-- Reply: how many list entries were settled. An order that is not terminal any
--   more cannot be; one that is gone was retired before.
-- Repeated call: goes on with the next ones.
local prefix, buckets = ARGV[1], 2 ^ tonumber(ARGV[4])
local members = call('LRANGE', KEYS[1], 0, tonumber(ARGV[3]) - 1)
for _, member in ipairs(members) do
  local key = prefix .. 'o' .. sub(member, 1, 12)
  local head = order_head(key)
  if head ~= '' and order_day(head) == sub(member, 13, 14) and order_status(head) >= DELIVERED then
    local bucket = prefix .. 'x' .. pack('>I2', parse('>I2', sub(member, 11, 12)) % buckets)
    call('APPEND', bucket, sub(member, 1, 9) .. sub(member, 13, 14))
    release_room(prefix, bucket)
    call('ZREM', prefix .. 'j' .. char(CANCELLED) .. order_fleet(head), member)
    call('DEL', key)
  end
end
call('LTRIM', KEYS[1], #members, -1)
if call('LLEN', KEYS[1]) == 0 then call('ZREM', KEYS[2], ARGV[2]) end
return #members
