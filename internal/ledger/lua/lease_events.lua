-- Hands out events of one endpoint: first those whose retry is due, then those
-- never attempted. What a dead worker had leased goes back to the retries.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 most to hand out, 4 most in flight,
--   5 lease in ms
-- Reply: lease's end in us (the token), then pairs: item, attempts made
-- Repeated call (lost reply): the first lease runs out and its events are
--   handed out again; nothing was sent for them.
local prefix, account = ARGV[1], ARGV[2]
local q, d, k, c = prefix .. 'q' .. account, prefix .. 'd' .. account, prefix .. 'k' .. account, prefix .. 'c' .. account
local clock_us = clock()
local now = floor(clock_us / 1000)
for _, item in ipairs(call('ZRANGEBYSCORE', k, '-inf', clock_us, 'LIMIT', 0, 1000)) do
  call('ZREM', k, item)
  call('ZADD', d, now, item)
end
local room = min(tonumber(ARGV[3]), tonumber(ARGV[4]) - call('ZCARD', k))
local token = clock_us + tonumber(ARGV[5]) * 1000
local out = {format('%.0f', token)}
local function hand_out(items, tried)
  local leases = {}
  for i, item in ipairs(items) do leases[2 * i - 1], leases[2 * i] = out[1], item end
  call('ZADD', k, unpack(leases))
  local attempts = tried and call('HMGET', c, unpack(items)) or {}
  for i, item in ipairs(items) do
    out[#out + 1] = item
    out[#out + 1] = attempts[i] or '0'
  end
end
if room > 0 then
  local due = call('ZRANGEBYSCORE', d, '-inf', now, 'LIMIT', 0, room)
  if #due > 0 then
    call('ZREM', d, unpack(due))
    hand_out(due, true)
    room = room - #due
  end
end
if room > 0 then
  local fresh = call('LPOP', q, room)
  if fresh then hand_out(fresh, false) end
  reschedule(prefix, account, now)
else
  -- Full: the next result, or the next lease to run out, makes room.
  local lease = call('ZRANGE', k, 0, 0, 'WITHSCORES')[2]
  call('ZADD', prefix .. 'W', lease and ceil(tonumber(lease) / 1000) or now, account)
end
return out
