-- Takes a courier's report: appends it to the partition's updates and notes in the
-- order what was reported, so that a reported pickup that still waits in the
-- stream beats a cancellation (decisions, "States"), and who got the answer that the job is
-- theirs, so that the second of two who accept at once is not. What says nothing
-- new is not appended, and what else there can be of is counted: a fleet can
-- lengthen neither the stream nor a record without bound. When another person takes over, what
-- is known of the former one's place ends here, not with the worker's decision, which
-- could meet the new one's first position.
-- KEYS 1 order, 2 updates
-- ARGV 1 fleet (16 bytes), 2 day (2 bytes), 3 kind of update, 4 status, 5 now in
--   ms, 6 update, 7 entry of the courier ('' with a status), 8 most failures, other
--   couriers and estimates of an order; steps forward are few by themselves, 9 location (24
--   bytes) that says that nothing is known since the update's time, 10 the count from
--   which no estimate is taken, 11 estimate of the drop-off in ms (0: none)
-- Replies: taken or known (the record or the stream holds it, or it is an estimate too
--   many: nothing appended) with the status (1 byte); with nothing appended either:
--   not_found, and with the record ended (and not as reported), unassigned (a swap, and
--   nobody has the job), taken_by_another (an accept), too_many
-- Repeated call: answers known. Only a failure that still waits in the stream is
--   appended again; the worker drops it as a repetition.
local ACCEPT, STATUS = 1, 2
local LEAST_REVISION, DAY = 60000, 86400000 -- ms; the first as in delivery/moves.go

local kind = tonumber(ARGV[3])
local handed_over = false
local order = kind == STATUS and order_head(KEYS[1]) or call('GET', KEYS[1])
if not order or order == '' or order_fleet(order) ~= ARGV[1] or order_day(order) ~= ARGV[2] then return 'not_found\n' end

local function refuse(why) return why .. '\n' .. call('GET', KEYS[1]) end

local wanted, now = tonumber(ARGV[4]), pack('>I8', tonumber(ARGV[5]))
local status, reported, flags = order_status(order), order_reported(order), byte(order, ORDER_FLAGS)
local ended, forward = status >= DELIVERED, wanted > reported and wanted <= DELIVERED and kind <= STATUS
local latest = max(reported, ended and 0 or status)

-- The status that was reported last, or an acceptance, repeated with another estimate. Until the
-- fleet gives one, the vendor has one that the service has computed.
local given, estimated = tonumber(ARGV[11]), order_estimated(order)
if given > 0 then given = max(given - order_created(order) + DAY, 1) end
local before = estimated > 0 and estimated or order_told(order)

local differs = given > 0 and (before == 0 or max(given - before, before - given) >= LEAST_REVISION)
local may_revise = differs and not ended and latest < DELIVERED and flags < 2 * tonumber(ARGV[10])
local revises = may_revise and kind == STATUS and wanted == latest

if kind == STATUS and not revises then
  if wanted <= latest or status == DELIVERED and wanted <= DELIVERED then
    if not ended then call('SETRANGE', KEYS[1], ORDER_COURIER_UPDATE_FIRST - 1, now) end
    return 'known\n' .. char(status)
  end
  -- Once for each order a delivery is taken that comes after the end: cash may have
  -- been collected.
  if ended and wanted ~= DELIVERED then return refuse('ended') end
elseif kind ~= STATUS then
  if ended then return refuse('ended') end

  local whose = order_courier(order, ARGV[7])
  revises = may_revise and kind == ACCEPT and whose == 'same'
  if whose == 'same' and not revises then return 'known\n' .. char(status) end
  if kind == ACCEPT and whose ~= 'none' and not revises then return refuse('taken_by_another') end
  handed_over = whose == 'other'
  if kind > STATUS and max(reported, status) < 2 then return refuse('unassigned') end
end

if not forward and (kind ~= ACCEPT or revises) then
  if flags >= 2 * tonumber(ARGV[8]) then return refuse('too_many') end
  flags = flags + 2
end

-- Only the acceptance of a first courier gets here without being a step forward or a revision.
local first_courier = kind == ACCEPT and not forward and not revises
if (forward or revises or first_courier and differs) and given > 0 then estimated = given end

call('XADD', KEYS[2], '*', 'u', ARGV[6])
call('SETRANGE', KEYS[1], ORDER_REPORTED - 1, char(forward and wanted or reported, flags)
  .. sub(order, ORDER_VERSION_FIRST, ORDER_TOLD_LAST) .. pack('>I4', estimated)
  .. sub(order, ORDER_CREATED_FIRST, ORDER_POLLED_LAST) .. now)
if handed_over then call('SETRANGE', KEYS[1], ORDER_LOCATION_FIRST - 1, ARGV[9]) end
if kind ~= STATUS and not revises then call('APPEND', KEYS[1], ARGV[7]) end

return 'taken\n' .. char(status)
