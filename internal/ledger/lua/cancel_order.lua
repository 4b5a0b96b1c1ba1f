-- Cancels an order for its vendor, before pickup.
-- KEYS 1 ring, 2 account, 3 order
-- ARGV 1 account (16 bytes), 2 day (2 bytes), 3 order member, 4 change entry
--   (status at 4, epoch at 5, time at 9), 5 now in ms, 6 key prefix {tag},
--   7 last status that may be cancelled, 8 first reported status that may not,
--   9 epoch
-- Replies: unknown; with a quota: limited, suspended, not_found, cancelled
--   (record; also when it already was), too_late (record)
-- Repeated call: counts again and answers cancelled with the same record.
local refused, verdict, now = count_request(KEYS[1], KEYS[2], 'c', clock())
if refused then return refused end
local function answer(name, payload) return reply(name, verdict, now, payload) end

local head = order_head(KEYS[3])
if head == '' or order_account(head) ~= ARGV[1] or order_day(head) ~= ARGV[2] then return answer('not_found') end
local status = order_status(head)
if status == CANCELLED then return answer('cancelled', redis.call('GET', KEYS[3])) end
if status > tonumber(ARGV[7]) or order_reported(head) >= tonumber(ARGV[8]) then
  return answer('too_late', redis.call('GET', KEYS[3]))
end
local updated, epoch = struct.unpack('>I8', string.sub(head, 13, 20)), tonumber(ARGV[9])
local at = math.max(tonumber(ARGV[5]), updated)
local entry = string.sub(ARGV[4], 1, 8) .. struct.pack('>I8', at) .. string.sub(ARGV[4], 17)
append_changes(ARGV[6], KEYS[3], head, ARGV[3], string.char(CANCELLED), entry, epoch, at, 0)
return answer('cancelled', redis.call('GET', KEYS[3]))
