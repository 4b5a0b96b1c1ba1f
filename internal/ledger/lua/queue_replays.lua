-- Schedules events again for one endpoint: each that waits already stays as it is, but
-- is due now.
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
local due, attempts, added, fresh = {}, {}, {}, 0
for i, score in ipairs(known) do
  local event = ARGV[4 + i]
  -- Thousandths keep them in their order.
  due[2 * i - 1], due[2 * i] = format('%.3f', now + (ARGV[4] + i) / 1000), event
  if not score then
    fresh = fresh + 1
    attempts[2 * fresh - 1], attempts[2 * fresh] = event, '0@' .. format('%d', now)
    added[fresh] = event
  end
end
if fresh > 0 and call('SCARD', replayed) + fresh > tonumber(ARGV[3]) then return 'full' end
call('ZADD', d, 'LT', unpack(due))
if fresh > 0 then
  call('HSET', c, unpack(attempts))
  call('SADD', replayed, unpack(added))
end
note(KEYS[2], ARGV[2])
return 'queued'
