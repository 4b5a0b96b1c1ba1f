-- Removes orders that ended in one hour and remembers their external ids (order.lua).
-- KEYS 1 list of that hour, 2 hours, 3 index of retired ids
-- ARGV 1 key prefix {tag}, 2 hour, 3 most to retire, 4 the index of a partition that has none
-- Reply: how many list entries were settled. An order that is not terminal any
--   more cannot be; one that is gone was retired before.
-- Repeated call: goes on with the next ones.
local prefix, index = ARGV[1], KEYS[3]
local ids, buckets, span, secret1, secret2, secret3 = parse(RETIRED_INDEX, call('GET', index) or ARGV[4])

local function write_index()
  call('SET', index, pack(RETIRED_INDEX, ids, buckets, span, secret1, secret2, secret3))
end

-- A filter of no ids, written as a whole: one that grows would keep room for more.
local function write_filter(number)
  call('SET', index .. number .. 'f', string.rep('\0', BUCKETS_PER_HASH * FILTER_BITS / 8))
end

-- Writes a bucket's part of the filter; the keys of bits are those of its ids.
local function write_bits(number, place, bits)
  local bytes = {}
  for at = 1, FILTER_BITS / 8 do bytes[at] = 0 end
  for bit in pairs(bits) do
    local at = floor(bit / 8) + 1
    bytes[at] = bytes[at] + 2 ^ (7 - bit % 8)
  end
  call('SETRANGE', index .. number .. 'f', format('%d', place * FILTER_BITS / 8), char(unpack(bytes)))
end

local function read_bucket(number, place) return call('HGET', index .. number, pack('>I2', place)) or '' end
local function write_bucket(number, place, entries) call('HSET', index .. number, pack('>I2', place), entries) end

-- Adds a bucket, which splits off the one that its ids are in; one that is missing is
-- empty. The ids are written to the new bucket, then the index says so, then they leave
-- the old one: whatever error ends the script in between, none is where nobody looks.
local function add_bucket()
  local added = buckets
  local old_number, old_place = retired_place(added, buckets, span)
  local entries = read_bucket(old_number, old_place)
  local stay, move, stay_bits, move_bits = {}, {}, {}, {}
  for at = 1, #entries, RETIRED_ENTRY do
    local entry = sub(entries, at, at + RETIRED_ENTRY - 1)
    local hash, bit = retired_hash(entry, secret1, secret2, secret3)
    if hash % span == added then
      move[#move + 1], move_bits[bit] = entry, true
    else
      stay[#stay + 1], stay_bits[bit] = entry, true
    end
  end

  buckets = buckets + 1
  if buckets == span then span = 2 * span end
  local number, place = retired_place(added, buckets, span)
  if place == 0 then write_filter(number) end
  write_bits(number, place, move_bits)
  write_bucket(number, place, table.concat(move))
  write_index()
  write_bucket(old_number, old_place, table.concat(stay))
  write_bits(old_number, old_place, stay_bits)
end

local function remember(digest, day)
  local hash, bit = retired_hash(digest, secret1, secret2, secret3)
  local number, place = retired_place(hash, buckets, span)
  if ids == 0 then write_filter(number) end
  call('SETBIT', index .. number .. 'f', format('%d', place * FILTER_BITS + bit), 1)
  write_bucket(number, place, read_bucket(number, place) .. digest .. day)
  ids = ids + 1
  if ids >= buckets * IDS_PER_BUCKET and buckets < MOST_BUCKETS then add_bucket() end
end

local DIGEST_LAST, DAY_FIRST, DAY_LAST = 12, 13, 14 -- in a member of the list

local members, retired, is_retired = call('LRANGE', KEYS[1], 0, tonumber(ARGV[3]) - 1), {}, {}
for _, member in ipairs(members) do
  local key, day = prefix .. 'o' .. sub(member, 1, DIGEST_LAST), sub(member, DAY_FIRST, DAY_LAST)
  local head = is_retired[key] and '' or order_head(key) -- an order may be listed twice
  if head ~= '' and order_day(head) == day and order_status(head) >= DELIVERED then
    remember(sub(member, 1, RETIRED_DIGEST), day)
    if order_status(head) == CANCELLED then
      call('ZREM', prefix .. 'j' .. char(CANCELLED) .. order_fleet(head), member)
    end
    retired[#retired + 1], is_retired[key] = key, true
  end
end

if #retired > 0 then
  write_index()
  call('DEL', unpack(retired))
end

call('LTRIM', KEYS[1], #members, -1)
if call('LLEN', KEYS[1]) == 0 then call('ZREM', KEYS[2], ARGV[2]) end
return #members
