-- The order record's head, 138 bytes, offsets from 0 (order_record.go):
--   0 format 1   1 status 1   2 reported 1   3 flags 1   4 version 8
--   12 updated ms 8   20 queued 4   24 attempted 4   28 created ms 8
--   36 polled us 8   44 courier update ms 8   52 nonce 8   60 fingerprint 16
--   76 account 16   92 fleet 16   108 day 2   110 location 24   134 length 4
-- Behind it: fleet terms and document (length bytes), then one entry for every
-- change. Flag 1: the idempotency key equals the external order id.
local ORDER_HEAD = 138
local CANCELLED, DELIVERED = 8, 6

local function order_head(key) return redis.call('GETRANGE', key, 0, ORDER_HEAD - 1) end
local function order_status(head) return string.byte(head, 2) end
local function order_reported(head) return string.byte(head, 3) end
local function order_account(head) return string.sub(head, 77, 92) end
local function order_fleet(head) return string.sub(head, 93, 108) end
local function order_day(head) return string.sub(head, 109, 110) end

-- Appends changes to an order and keeps everything that follows from its
-- status: one event per change, the fleet's job lists, the timer, and the list
-- of ended orders. statuses is one byte per change, entries their encodings,
-- at the time of the last in milliseconds, due the next timer (0: none).
local function append_changes(prefix, key, head, member, statuses, entries, epoch, at, due)
  local from, to = order_status(head), string.byte(statuses, -1)
  local _, sequence = struct.unpack('>I4I4', string.sub(head, 5, 12))
  local event, entry = '\1' .. member, nil
  for _ = 1, #statuses do
    sequence = sequence + 1
    entry = redis.call('XADD', prefix .. 'e', '*', 'e', event .. struct.pack('>I4I4', epoch, sequence))
  end
  redis.call('SETRANGE', key, 1, string.char(to, order_reported(head)) .. string.sub(head, 4, 4) ..
    struct.pack('>I4I4I8', epoch, sequence, at))
  redis.call('APPEND', key, entries)
  local fleet = order_fleet(head)
  redis.call('ZREM', prefix .. 'j' .. string.char(from) .. fleet, member)
  if to < DELIVERED or to == CANCELLED then
    redis.call('ZADD', prefix .. 'j' .. string.char(to) .. fleet, at, member)
  end
  if to < DELIVERED then
    redis.call('ZADD', prefix .. 't', due, member)
  else
    redis.call('ZREM', prefix .. 't', member)
    -- By the time of the event's entry, not of the change, which a fleet may
    -- date back: retirement compares it with what the groups have consumed.
    local hour = math.floor(tonumber(string.match(entry, '^%d+')) / 3600000)
    redis.call('RPUSH', prefix .. 'R' .. hour, member)
    redis.call('ZADD', prefix .. 'H', hour, hour)
  end
end
