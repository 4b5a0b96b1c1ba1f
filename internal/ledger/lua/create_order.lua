-- Creates an order: limits, idempotency, store, fleet, coverage, uniqueness,
-- record and event, all or nothing (design sections 3 and 4).
-- KEYS 1 ring, 2 account, 3 order, 4 store, 5 events, 6 bucket of retired ids,
--   and, when an idempotency key other than the external id was sent:
--   7 idempotency record, 8 the order whose external id equals that key
-- ARGV 1 record up to the account (92 bytes: nonce at 53, fingerprint at 61)
--   2 record from the day on up to the document's length, without the length
--   3 document, 4 event, 5 field of the retired id
--   6 fleets that may matter, 16 bytes each, 7 one byte for each fleet:
--   1 covers, 2 suspended, 4 no couriers; 8 key prefix {tag}
--   9... terms of each fleet
-- Replies: unknown; with a quota: limited, suspended, created (fleet's number),
--   recovered (record), replayed (record), key_conflict, store (not active),
--   fleet_suspended, coverage, no_couriers, duplicate (day of the order that
--   has the id)
-- Repeated call (the reply was lost): the order carries this call's nonce, so
--   it answers recovered before any limit is consumed.
local now = clock()
local head, day = ARGV[1], string.sub(ARGV[2], 1, 2)
local found = redis.call('MGET', KEYS[3], KEYS[4], KEYS[7] or KEYS[3], KEYS[8] or KEYS[3])
local order, store = found[1], found[2]

local ring = read_ring(KEYS[1], KEYS[2], 'o')
if not ring then return 'unknown' end
local verdict = judge(ring, now)

if order and string.sub(order, 53, 60) == string.sub(head, 53, 60) then
  return reply('recovered', verdict, ring.now, order)
end
if verdict.remaining < 0 then return reply('limited', verdict, ring.now) end
admit(ring)
if suspended(ring) then return reply('suspended', verdict, ring.now) end

local function answer(name, payload) return reply(name, verdict, ring.now, payload) end

local fingerprint = string.sub(head, 61, 76)
if KEYS[7] then
  local name, payload = earlier_success(found[3] or nil, found[4] or nil, fingerprint, now, ARGV[8])
  if name then return answer(name, payload) end
elseif order and string.byte(head, 4) % 2 == 1 then
  local name, payload = earlier_success(nil, order, fingerprint, now, ARGV[8])
  if name then return answer(name, payload) end
end

if not store or string.byte(store, 2) ~= 3 then return answer('store') end
local fleet = string.sub(store, 11, 26)
local at = string.find(ARGV[6], fleet, 1, true)
while at and at % 16 ~= 1 do at = string.find(ARGV[6], fleet, at + 1, true) end
local number = at and (at - 1) / 16 or nil
local verdicts = number and string.byte(ARGV[7], number + 1) or 0
if math.floor(verdicts / 2) % 2 == 1 then return answer('fleet_suspended') end
if verdicts % 2 == 0 then return answer('coverage') end
if verdicts >= 4 then return answer('no_couriers') end

if order then return answer('duplicate', order_day(order)) end
local retired = redis.call('HGET', KEYS[6], ARGV[5])
if retired then return answer('duplicate', retired) end

local terms = ARGV[9 + number]
redis.call('SET', KEYS[3], head .. fleet .. ARGV[2] .. struct.pack('>I4', #terms + #ARGV[3]) .. terms .. ARGV[3])
if KEYS[7] then
  redis.call('SET', KEYS[7], fingerprint .. string.sub(ARGV[4], 2, 15), 'PX', 86400000)
end
redis.call('XADD', KEYS[5], '*', 'e', ARGV[4])
return answer('created', struct.pack('>I2', number))
