-- Cancels an order for its vendor, before pickup.
-- KEYS 1 windows, 2 order
-- ARGV 1 account (16 bytes), 2 day (2 bytes), 3 order member, 4 change entry
--   (status at 4, version at 5, time at 13), 5 now in ms, 6 key prefix {tag},
--   7 last status that may be cancelled, 8 first reported status that may not,
--   9 nonce (8 bytes), whose first bytes are the random part of the version
-- Replies: unknown; with a quota: limited, suspended, not_found, cancelled
--   (record), already (record; it was cancelled before), too_late (record)
-- Repeated call (the reply was lost): the order carries this call's nonce, in the
--   place of its creation's, so it answers cancelled before any limit is consumed:
--   whoever has cancelled with the last request of a window does not get 429.
local STATUS_REACHED = '\0' -- of delivery.ChangeKind
local CHANGE_STATUS, CHANGE_REST_FIRST = 4, 19 -- in the change entry

if not open_windows(KEYS[1], call('GET', KEYS[1])) then return 'unknown' end

local now = clock()
local passes, head = check_limits(now), order_head(KEYS[2])
if head ~= '' and order_status(head) == CANCELLED and sub(head, ORDER_NONCE_FIRST, ORDER_NONCE_LAST) == ARGV[9] then
  return reply('cancelled', call('GET', KEYS[2]))
end

if not passes then return reply('limited') end
record_request()
call('SET', KEYS[1], recorded)
if suspended() then return reply('suspended') end

if head == '' or order_account(head) ~= ARGV[1] or order_day(head) ~= ARGV[2] then return reply('not_found') end

local status = order_status(head)
if status == CANCELLED then return reply('already', call('GET', KEYS[2])) end
if status > tonumber(ARGV[7]) or order_reported(head) >= tonumber(ARGV[8]) then
  return reply('too_late', call('GET', KEYS[2]))
end

local prefix, member, fleet = ARGV[6], ARGV[3], order_fleet(head)
local version = next_version(sub(head, ORDER_VERSION_FIRST, ORDER_VERSION_LAST), now, ARGV[9])
local at = max(tonumber(ARGV[5]), parse('>I8', sub(head, ORDER_UPDATED_FIRST, ORDER_UPDATED_LAST)))

local reference = '\1' .. member .. version .. STATUS_REACHED
local event = call('XADD', prefix .. 'e', '*', 'e', reference)
index_events(prefix, ARGV[1], event, 'e', reference)

call('SETRANGE', KEYS[2], ORDER_STATUS - 1, char(CANCELLED, order_reported(head)) .. sub(head, ORDER_FLAGS, ORDER_FLAGS)
  .. version .. pack('>I8', at))
call('SETRANGE', KEYS[2], ORDER_NONCE_FIRST - 1, ARGV[9])
call('APPEND', KEYS[2], sub(ARGV[4], 1, CHANGE_STATUS) .. version .. sub(pack('>I8', at), 3) .. sub(ARGV[4], CHANGE_REST_FIRST))

call('ZREM', prefix .. 'j' .. char(status) .. fleet, member)
call('ZADD', prefix .. 'j' .. char(CANCELLED) .. fleet, at, member)
call('ZREM', prefix .. 't', member)

end_orders(prefix, event, {member})
return reply('cancelled', call('GET', KEYS[2]))
