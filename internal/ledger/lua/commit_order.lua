-- Appends changes to an order, or swaps its courier, if it still is the version
-- that the decision was made on, and acknowledges the updates that led there.
-- KEYS 1 order, 2 updates
-- ARGV 1 expected version (8 bytes), 2 order member, 3 statuses (one byte per
--   change, empty for a swap), 4 entries, 5 epoch, 6 time of the last change in
--   ms, 7 next timer in ms, 8 key prefix {tag}, 9 consumer group, 10 reported
--   status (1 byte) and time of the last courier update (8 bytes) as read ('':
--   not compared), 11... stream ids to acknowledge
-- Replies: committed, conflict (another version, or ARGV 10 differs), missing (no
--   such order)
-- Repeated call: the version has moved on, so it answers conflict; reading
--   again shows that nothing is left to do. A swap moves no version: one that is
--   the record's last entry already is not written again.
local head = order_head(KEYS[1])
if head == '' or order_day(head) ~= sub(ARGV[2], 13, 14) then return 'missing' end
if sub(head, 5, 12) ~= ARGV[1] then return 'conflict' end
if ARGV[10] ~= '' and sub(head, 3, 3) .. sub(head, 45, 52) ~= ARGV[10] then return 'conflict' end
if ARGV[3] == '' then
  if call('GETRANGE', KEYS[1], -#ARGV[4], -1) ~= ARGV[4] then call('APPEND', KEYS[1], ARGV[4]) end
else
  append_changes(ARGV[8], KEYS[1], head, ARGV[2], ARGV[3], ARGV[4],
    tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]))
end
if ARGV[11] then call('XACK', KEYS[2], ARGV[9], unpack(ARGV, 11)) end
return 'committed'
