-- Schedules events again for one endpoint. Each that waits already keeps its attempts and its
-- window, is due now, and is marked as asked for, so that the end of a send that had begun before does
-- not remove it (unschedule in names.lua).
-- KEYS 1 endpoint, 2 notes
-- ARGV 1 key prefix {tag}, 2 account, 3 most replayed events that may wait, 4 how many were
--   queued before these, 5... events
-- Replies: queued, full (there would be more replayed ones: nothing was queued), no_endpoint
-- Repeated call: all of them wait.
-- Events that waited before they were replayed are not counted as replayed: they take no
-- memory that they did not take before.
if not call('HGET', KEYS[1], 'url') then return 'no_endpoint' end
local d, c, now = ARGV[1] .. 'd' .. ARGV[2], ARGV[1] .. 'c' .. ARGV[2], floor(clock() / 1000)
local replayed = c .. 'r'
local known = call('ZMSCORE', d, unpack(ARGV, 5))
local before = call('HMGET', c, unpack(ARGV, 5))
local due, attempts, added = {}, {}, {}
for i, score in ipairs(known) do
  local event = ARGV[4 + i]
  -- Thousandths keep them in their order.
  due[2 * i - 1], due[2 * i] = format('%.3f', now + (ARGV[4] + i) / 1000), event
  attempts[2 * i - 1] = event
  if score then
    attempts[2 * i] = string.match(before[i] or '0', '^[^+]*') .. '+' .. format('%d', now)
  else
    attempts[2 * i] = '0@' .. format('%d', now)
    added[#added + 1] = event
  end
end
if #added > 0 and call('SCARD', replayed) + #added > tonumber(ARGV[3]) then return 'full' end
call('ZADD', d, 'LT', unpack(due))
call('HSET', c, unpack(attempts))
if #added > 0 then call('SADD', replayed, unpack(added)) end
note(KEYS[2], ARGV[2])
return 'queued'
