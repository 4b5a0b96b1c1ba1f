-- Takes a courier's update: appends it to the partition's updates and notes in
-- the order what was reported, so that a reported pickup that still waits in
-- the stream beats a cancellation (design section 6).
-- KEYS 1 order, 2 updates
-- ARGV 1 fleet (16 bytes), 2 day (2 bytes), 3 reported forward status (0: none),
--   4 now in ms, 5 update, 6 '1': only while the order has not ended
-- Replies: not_found; taken, ended (nothing appended), each with the record as
--   it stood before
-- Repeated call: the update is in the stream twice; the second is dropped as a
--   repetition by the table of moves.
local order = call('GET', KEYS[1])
if not order or order_fleet(order) ~= ARGV[1] or order_day(order) ~= ARGV[2] then return 'not_found\n' end
if ARGV[6] == '1' and order_status(order) >= DELIVERED then return 'ended\n' .. order end
call('XADD', KEYS[2], '*', 'u', ARGV[5])
local reported = tonumber(ARGV[3])
if reported > order_reported(order) then call('SETRANGE', KEYS[1], 2, char(reported)) end
call('SETRANGE', KEYS[1], 44, pack('>I8', tonumber(ARGV[4])))
return 'taken\n' .. order
