-- Creates an order: limits, idempotency, store, fleet, coverage, uniqueness,
-- record and event, all or nothing.
--
-- The server hashes every byte of every string that it hands to Lua or that Lua
-- makes, so the record comes ready made for each fleet that could have the
-- order, which are one or two, and is passed on as it is.
-- KEYS 1 windows, 2 order, 3 store, 4 index of retired ids, 5 events,
--   and, when an idempotency key was sent: 6 idempotency record, and, unless
--   the key is the external id, 7 the order whose external id equals that key
-- ARGV 1 event (digest at 2, day at 14), 2 one byte (1: the idempotency key is
--   the external id), nonce (8 bytes), fingerprint (16), and for each fleet that
--   may be the store's but takes no order one byte (1 covers, 2 suspended) and
--   its id (16), 3... records (order.lua), one for each fleet that takes orders
-- Replies: unknown; with a quota: limited, suspended, created (id of the fleet),
--   recovered (record), replayed (record), key_conflict, store (its state, nothing without one),
--   fleet_suspended, coverage, no_couriers, duplicate (day of the order that has
--   the id)
-- Repeated call (the reply was lost): the order carries this call's nonce, so
--   it answers recovered before any limit is consumed.
local EVENT_DIGEST_FIRST, EVENT_DAY_LAST = 2, 15 -- in ARGV 1
local NONCE_FIRST, NONCE_LAST = 2, 9 -- in ARGV 2
local FINGERPRINT_FIRST, FINGERPRINT_LAST = 10, 25
local OTHER_FLEETS_FIRST = 26
local STORE_STATE, STORE_ACTIVE = 2, 3
local STORE_FLEET_FIRST, STORE_FLEET_LAST = 11, 26

local now, found, record, same = clock(), nil, nil, nil
if KEYS[7] then
  found = call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7])
  record, same = found[5], found[6]
elseif KEYS[6] then
  -- The key may have been used before, for another external id.
  found = call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6])
  record, same = found[5], found[2]
else
  found = call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
end

local order, store = found[2], found[3]

if not open_windows(KEYS[1], found[1]) then return 'unknown' end
local passes = check_limits(now)
if order and sub(order, ORDER_NONCE_FIRST, ORDER_NONCE_LAST) == sub(ARGV[2], NONCE_FIRST, NONCE_LAST) then
  return reply('recovered', order)
end
if not passes then return reply('limited') end
record_request()

if suspended() then return reply_counted('suspended') end
if record or same then
  local name, payload = earlier_success(record, same, sub(ARGV[2], FINGERPRINT_FIRST, FINGERPRINT_LAST), now, KEYS[1])
  if name then return reply_counted(name, payload) end
end

if not store or byte(store, STORE_STATE) ~= STORE_ACTIVE then
  return reply_counted('store', store and sub(store, STORE_STATE, STORE_STATE))
end

local fleet, number = sub(store, STORE_FLEET_FIRST, STORE_FLEET_LAST), 3
while ARGV[number] and find(ARGV[number], fleet, ORDER_FLEET_FIRST, true) ~= ORDER_FLEET_FIRST do number = number + 1 end
if not ARGV[number] then return reply_counted(why_not(ARGV[2], OTHER_FLEETS_FIRST, fleet)) end

if order then return reply_counted('duplicate', order_day(order)) end
local retired = found[4] and retired_day(KEYS[4], found[4], sub(ARGV[1], EVENT_DIGEST_FIRST, EVENT_DIGEST_FIRST + RETIRED_DIGEST - 1))
if retired then return reply_counted('duplicate', retired) end

call('MSET', KEYS[1], recorded, KEYS[2], ARGV[number])
if KEYS[7] then
  call('SET', KEYS[6], sub(ARGV[2], FINGERPRINT_FIRST, FINGERPRINT_LAST) .. sub(ARGV[1], EVENT_DIGEST_FIRST, EVENT_DAY_LAST), 'PX', '86400000')
end
call('XADD', KEYS[5], '*', 'e', ARGV[1])
return reply('created', fleet)
