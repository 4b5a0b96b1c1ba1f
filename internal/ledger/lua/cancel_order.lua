-- Cancels an order for its vendor, before pickup.
-- KEYS 1 windows, 2 order
-- ARGV 1 account (16 bytes), 2 day (2 bytes), 3 order member, 4 change entry
--   (status at 4, epoch at 5, time at 9), 5 now in ms, 6 key prefix {tag},
--   7 last status that may be cancelled, 8 first reported status that may not,
--   9 epoch, 10 nonce (8 bytes)
-- Replies: unknown; with a quota: limited, suspended, not_found, cancelled
--   (record), already (record; it was cancelled before), too_late (record)
-- Repeated call (the reply was lost): the order carries this call's nonce, in the
--   place of its creation's, so it answers cancelled before any limit is consumed:
--   whoever has cancelled with the last request of a window does not get 429.
if not open_windows(KEYS[1], call('GET', KEYS[1])) then return 'unknown' end
local passes, head = check_limits(clock()), order_head(KEYS[2])
if head ~= '' and order_status(head) == CANCELLED and sub(head, 53, 60) == ARGV[10] then
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
local _, sequence, updated = parse('>I4I4I8', sub(head, 5, 20))
local version, at = pack('>I4I4', tonumber(ARGV[9]), sequence + 1), max(tonumber(ARGV[5]), updated)
local event = call('XADD', prefix .. 'e', '*', 'e', '\1' .. member .. version)
index_events(prefix, ARGV[1], event, 'e', '\1' .. member .. version)
call('SETRANGE', KEYS[2], 1, char(CANCELLED, order_reported(head)) .. sub(head, 4, 4) .. version .. pack('>I8', at))
call('SETRANGE', KEYS[2], 52, ARGV[10])
call('APPEND', KEYS[2], sub(ARGV[4], 1, 8) .. pack('>I8', at) .. sub(ARGV[4], 17))
call('ZREM', prefix .. 'j' .. char(status) .. fleet, member)
call('ZADD', prefix .. 'j' .. char(CANCELLED) .. fleet, at, member)
call('ZREM', prefix .. 't', member)
end_orders(prefix, event, {member})
return reply('cancelled', call('GET', KEYS[2]))
