-- Stores a store if its revision is still the one that was read, keeps the
-- lists of its fleet and account, sets or clears its closing timer, and
-- publishes what happened to it.
-- KEYS 1 store, 2 account's stores, 3 closings, 4 events
-- ARGV 1 expected revision (8 bytes, zero for a new store), 2 record
--   (state at 2, revision at 3, fleet at 11), 3 store digest, 4 end of the
--   closing day in ms (0: not closing), 5 key prefix {tag}, 6 lifetime of a
--   notice in ms, then pairs: event id, notice
-- Replies: written, conflict (the revision is another)
-- Repeated call: the revision has moved on, so it answers conflict; the caller
--   reads again and finds its own change.
local NO_FLEET = string.rep('\0', 16)
local old = call('GETRANGE', KEYS[1], 0, 25)
local revision = old == '' and string.rep('\0', 8) or sub(old, 3, 10)
if revision ~= ARGV[1] then return 'conflict' end
local before = old == '' and NO_FLEET or sub(old, 11, 26)
local after = sub(ARGV[2], 11, 26)
call('SET', KEYS[1], ARGV[2])
call('SADD', KEYS[2], ARGV[3])
if before ~= after then
  if before ~= NO_FLEET then call('SREM', ARGV[5] .. 'F' .. before, ARGV[3]) end
  if after ~= NO_FLEET then call('SADD', ARGV[5] .. 'F' .. after, ARGV[3]) end
end
if ARGV[4] == '0' then
  call('ZREM', KEYS[3], ARGV[3])
else
  call('ZADD', KEYS[3], ARGV[4], ARGV[3])
end
for i = 7, #ARGV, 2 do
  call('SET', ARGV[5] .. 'n' .. ARGV[i], ARGV[i + 1], 'PX', ARGV[6])
  call('XADD', KEYS[4], '*', 'e', '\2' .. ARGV[i])
end
return 'written'
