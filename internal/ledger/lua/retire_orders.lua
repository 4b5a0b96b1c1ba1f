-- Removes orders that ended in one hour and remembers their external ids.
-- KEYS 1 list of that hour, 2 hours
-- ARGV 1 key prefix {tag}, 2 hour, 3 most to retire, 4 bits of a bucket's number
-- Reply: how many list entries were settled. An order that is not terminal any
--   more cannot be; one that is gone was retired before.
-- Repeated call: goes on with the next ones.
local prefix, buckets = ARGV[1], 2 ^ tonumber(ARGV[4])
local members = redis.call('LRANGE', KEYS[1], 0, tonumber(ARGV[3]) - 1)
for _, member in ipairs(members) do
  local key = prefix .. 'o' .. string.sub(member, 1, 12)
  local head = order_head(key)
  if head ~= '' and order_day(head) == string.sub(member, 13, 14) and order_status(head) >= DELIVERED then
    local bucket = struct.unpack('>I2', string.sub(member, 11, 12)) % buckets
    redis.call('HSET', prefix .. 'x' .. struct.pack('>I2', bucket), string.sub(member, 1, 9), string.sub(member, 13, 14))
    redis.call('ZREM', prefix .. 'j' .. string.char(CANCELLED) .. order_fleet(head), member)
    redis.call('DEL', key)
  end
end
redis.call('LTRIM', KEYS[1], #members, -1)
if redis.call('LLEN', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[2]) end
return #members
