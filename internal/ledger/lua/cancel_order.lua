-- Cancels an order for its vendor, before pickup.
-- KEYS 1 ring, 2 order
-- ARGV 1 account (16 bytes), 2 day (2 bytes), 3 order member, 4 change entry
--   (status at 4, epoch at 5, time at 9), 5 now in ms, 6 key prefix {tag},
--   7 last status that may be cancelled, 8 first reported status that may not,
--   9 epoch
-- Replies: unknown; with a quota: limited, suspended, not_found, cancelled
--   (record), already (record; it was cancelled before), too_late (record)
-- Repeated call: counts again and answers already with the same record.
local refused = count_request(KEYS[1], clock())
if refused then return refused end

local head = order_head(KEYS[2])
if head == '' or order_account(head) ~= ARGV[1] or order_day(head) ~= ARGV[2] then return reply('not_found') end
local status = order_status(head)
if status == CANCELLED then return reply('already', call('GET', KEYS[2])) end
if status > tonumber(ARGV[7]) or order_reported(head) >= tonumber(ARGV[8]) then
  return reply('too_late', call('GET', KEYS[2]))
end
local updated, epoch = parse('>I8', sub(head, 13, 20)), tonumber(ARGV[9])
local at = max(tonumber(ARGV[5]), updated)
local entry = sub(ARGV[4], 1, 8) .. pack('>I8', at) .. sub(ARGV[4], 17)
append_changes(ARGV[6], KEYS[2], head, ARGV[3], char(CANCELLED), entry, epoch, at, 0)
return reply('cancelled', call('GET', KEYS[2]))
