-- The order record's head, 138 bytes, with offsets from 0, as SETRANGE and record.go count them:
--   0 format 1   1 status 1   2 reported 1   3 flags 1   4 version 8
--   12 updated ms 8   20 told 4   24 estimated 4   28 created ms 8
--   36 polled us 8   44 courier update ms 8   52 nonce 8   60 fingerprint 16
--   76 account 16   92 day 2   94 location 24   118 length 4   122 fleet 16
-- In a shrunk order, format 2, what is behind the head begins in the place of location and length.
-- Behind it: the fleet's terms, the document (length bytes), then one entry for
-- every change (record.go). Flag 1: the idempotency key equals the external
-- order id; the bits above it count the reports that were no step forward.
-- Two estimates of the drop-off, in ms since a day before the creation, 0: none. Told is the one
-- that the vendor was last told; the owner of the partition writes it. Estimated is the one that
-- the fleet gave last; it may wait to be decided, and a decision about an earlier one leaves it.
local ORDER_HEAD = 138

-- The same layout with positions from 1, as sub and byte count them. SETRANGE takes one less.
local ORDER_STATUS, ORDER_REPORTED, ORDER_FLAGS = 2, 3, 4
local ORDER_VERSION_FIRST, ORDER_VERSION_LAST = 5, 12
local ORDER_UPDATED_FIRST, ORDER_UPDATED_LAST = 13, 20
local ORDER_TOLD_FIRST, ORDER_TOLD_LAST = 21, 24
local ORDER_ESTIMATED_FIRST, ORDER_ESTIMATED_LAST = 25, 28
local ORDER_CREATED_FIRST, ORDER_CREATED_LAST = 29, 36
local ORDER_POLLED_FIRST, ORDER_POLLED_LAST = 37, 44
local ORDER_COURIER_UPDATE_FIRST = 45
local ORDER_NONCE_FIRST, ORDER_NONCE_LAST = 53, 60
local ORDER_FINGERPRINT_FIRST, ORDER_FINGERPRINT_LAST = 61, 76
local ORDER_ACCOUNT_FIRST, ORDER_ACCOUNT_LAST = 77, 92
local ORDER_DAY_FIRST, ORDER_DAY_LAST = 93, 94
local ORDER_LOCATION_FIRST = 95
local ORDER_LOCATION_TIME_FIRST, ORDER_LOCATION_TIME_LAST = 111, 118
local ORDER_LENGTH_FIRST, ORDER_LENGTH_LAST = 119, 122
local ORDER_FLEET_FIRST, ORDER_FLEET_LAST = 123, 138

-- Two of the statuses of the contract.
local CANCELLED, DELIVERED = 8, 6

local function order_head(key) return call('GETRANGE', key, 0, ORDER_HEAD - 1) end
local function order_status(head) return byte(head, ORDER_STATUS) end
local function order_reported(head) return byte(head, ORDER_REPORTED) end
local function order_told(head) return parse('>I4', sub(head, ORDER_TOLD_FIRST, ORDER_TOLD_LAST)) end
local function order_estimated(head) return parse('>I4', sub(head, ORDER_ESTIMATED_FIRST, ORDER_ESTIMATED_LAST)) end
local function order_created(head) return parse('>I8', sub(head, ORDER_CREATED_FIRST, ORDER_CREATED_LAST)) end
local function order_account(head) return sub(head, ORDER_ACCOUNT_FIRST, ORDER_ACCOUNT_LAST) end
local function order_fleet(head) return sub(head, ORDER_FLEET_FIRST, ORDER_FLEET_LAST) end
local function order_day(head) return sub(head, ORDER_DAY_FIRST, ORDER_DAY_LAST) end

-- Whether the courier of an entry ('A', its length, the courier) is the one who has
-- the job: same, corrected (the same person, whose phone it is, but another name or
-- vehicle), other, or none while nobody has it. Who got that answer last has it, even if
-- the worker has not decided yet; where no report named a courier, the order is the one's
-- whom its changes name. An erasure ('E') begins with no courier.
local function order_courier(order, entry)
  local at, length, factor, last = 143, 0, 1, nil -- the fleet's name, behind its id and minutes
  repeat
    last = byte(order, at)
    length, factor, at = length + last % 128 * factor, factor * 128, at + 1
  until last < 128

  at = at + length + parse('>I4', sub(order, ORDER_LENGTH_FIRST, ORDER_LENGTH_LAST))
  local courier, whose, known = sub(entry, 4), 'none', false
  local phone = sub(courier, 1, 1 + byte(courier)) -- behind its length
  while at < #order do
    local kind, from = char(byte(order, at)), at + 3
    at = from + parse('>I2', sub(order, at + 1, at + 2))
    if kind == 'S' then from = from + 15 end -- behind status, version and time
    if kind == 'A' or not known and sub(order, from, from + 2) ~= '\0\0\0' then
      known = kind == 'A' or known
      whose = 'other'
      if sub(order, from, from + #phone - 1) == phone then whose = 'corrected' end
      if sub(order, from, from + #courier - 1) == courier then whose = 'same' end
    end
  end
  return whose
end

-- The version that follows another one of the same order (internal/delivery/version.go), both 8
-- bytes: 42 bits of time, ms since 2020 and 2 more than the one before, 14 random bits, 8 of
-- sequence. Numbers of Lua are exact up to 53 bits, so the halves are made one by one. now: us.
local VERSION_ERA = 1577836800000
local function next_version(version, now, random)
  local high, low = parse('>I4I4', version)
  local ms = max(floor(now / 1000) - VERSION_ERA, high * 1024 + floor(low / 4194304) + 2)
  local random_bits, sequence = parse('>I2', random) % 16384, low % 256 + 1
  return pack('>I4I4', floor(ms / 1024), ms % 1024 * 4194304 + random_bits * 256 + sequence)
end

-- A copy has none of the room that APPEND has reserved for more, up to as much again.
local function release_room(prefix, key)
  call('COPY', key, prefix .. 'y', 'REPLACE')
  call('RENAME', prefix .. 'y', key)
end

-- How many values are spread at once, at most. Lua has room for less than 8,000; beyond that a
-- script would stop half done.
local SPREAD_AT_ONCE = 4000

-- Lists orders that have ended, by the time of the stream's entry that says so, not of the
-- change, which a fleet may date back: retirement compares it with what the groups have
-- consumed.
local function end_orders(prefix, entry, members)
  for _, member in ipairs(members) do release_room(prefix, prefix .. 'o' .. sub(member, 1, 12)) end
  local hour = floor(tonumber(string.match(entry, '^%d+')) / 3600000)
  for first = 1, #members, SPREAD_AT_ONCE do
    call('RPUSH', prefix .. 'R' .. hour, unpack(members, first, min(first + SPREAD_AT_ONCE - 1, #members)))
  end
  call('ZADD', prefix .. 'H', hour, hour)
end

-- The external ids of retired orders stay for ever, so nothing here may cost more with
-- every one of them. They stand in buckets of some 24 by linear hashing: with every 24th
-- id one bucket is split in two, the next in turn, so that buckets stay as small as they
-- are and no call does more than its share. retired.go does the same arithmetic.
--
-- A bucket is a field (2 bytes) of a hash ('x' and 4 bytes) that has 170 of them: a key
-- for each bucket would take twice the memory around it, and would be walked by everything
-- that walks all orders. It has 11 bytes for an id: nine of the order's digest, two of
-- the day that completes its id. Nine bytes take a new id for one of a hundred million
-- others less than once in 10^13 times.
--
-- Beside the hash is a string (with f behind its key), a filter: of the 192 bits of each
-- bucket those of its ids are set. A creation looks at one bit and, if it is not set, at
-- nothing else: a bucket lies in four places that no cache holds, the bit in one.
--
-- The partition's index ('x' alone) is a string:
--
--   0  ids       6   how many there are
--   6  buckets   4
--   10 span      4   the smallest power of two above buckets
--   14 secrets   12  three numbers of 4 bytes, below RETIRED_PRIME, drawn once for the
--                    partition: they decide in which bucket an id is, so that nobody can
--                    choose ids that all meet in one
local RETIRED_INDEX, RETIRED_PLACES = '>I6I4I4I4I4I4', '>I4I4I4I4I4'
local RETIRED_ENTRY, RETIRED_DIGEST = 11, 9
local RETIRED_PRIME = 67108859 -- above every part of a digest, and so small that sums stay exact
local IDS_PER_BUCKET, BUCKETS_PER_HASH, MOST_BUCKETS = 24, 170, 67108859
local FILTER_BITS = 192 -- of a bucket; so a filter has 4,080 bytes, which Redis's allocator keeps in 4,096

-- A digest's number below RETIRED_PRIME, which decides its bucket, and its bit in the filter.
local function retired_hash(digest, secret1, secret2, secret3)
  local part1, part2, part3 = parse('>I3I3I3', digest)
  return (part1 * secret1 + part2 * secret2 + part3 * secret3) % RETIRED_PRIME, part3 % FILTER_BITS
end

-- Where an id's bucket is: what the hash's key has behind that of the index, and the
-- bucket's place in the hash. Where that bucket has not come yet, the id is in the one that
-- will be split for it.
local function retired_place(hash, buckets, span)
  local bucket = hash % span
  if bucket >= buckets then bucket = bucket - span / 2 end
  local place = bucket % BUCKETS_PER_HASH
  return pack('>I4', (bucket - place) / BUCKETS_PER_HASH), place
end

-- Looks for an id, by its digest's first bytes; key is that of the index. Returns the day, or nil.
local function retired_day(key, index, digest)
  local buckets, span, secret1, secret2, secret3 = parse(RETIRED_PLACES, index, 7)
  local hash, bit = retired_hash(digest, secret1, secret2, secret3)
  local number, place = retired_place(hash, buckets, span)
  if call('GETBIT', key .. number .. 'f', format('%d', place * FILTER_BITS + bit)) == 0 then return nil end

  local entries = call('HGET', key .. number, pack('>I2', place))
  if not entries then return nil end
  local at = find(entries, digest, 1, true)
  while at and at % RETIRED_ENTRY ~= 1 do at = find(entries, digest, at + 1, true) end
  return at and sub(entries, at + RETIRED_DIGEST, at + RETIRED_ENTRY - 1)
end

-- Why a fleet takes no order here, by the list that begins at the given place:
-- one byte (1 covers, 2 suspended) and the fleet's id. A fleet that is not in
-- it does not cover the drop-off.
local function why_not(list, from, fleet)
  for at = from, #list, 17 do
    if sub(list, at + 1, at + 16) == fleet then
      local flags = byte(list, at)
      if flags >= 2 then return 'fleet_suspended' end
      return flags == 1 and 'no_couriers' or 'coverage'
    end
  end
  return 'coverage'
end
