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
local now = math.floor(clock_us / 1000)
for _, item in ipairs(redis.call('ZRANGEBYSCORE', k, '-inf', clock_us, 'LIMIT', 0, 1000)) do
  redis.call('ZREM', k, item)
  redis.call('ZADD', d, now, item)
end
local room = math.min(tonumber(ARGV[3]), tonumber(ARGV[4]) - redis.call('ZCARD', k))
local token = clock_us + tonumber(ARGV[5]) * 1000
local out = {string.format('%.0f', token)}
local function hand_out(item)
  redis.call('ZADD', k, token, item)
  out[#out + 1] = item
  out[#out + 1] = redis.call('HGET', c, item) or '0'
end
if room > 0 then
  local due = redis.call('ZRANGEBYSCORE', d, '-inf', now, 'LIMIT', 0, room)
  for _, item in ipairs(due) do
    redis.call('ZREM', d, item)
    hand_out(item)
  end
  room = room - #due
end
if room > 0 then
  for _, item in ipairs(redis.call('LPOP', q, room) or {}) do hand_out(item) end
  reschedule(prefix, account, now)
else
  -- Full: the next result, or the next lease to run out, makes room.
  local lease = redis.call('ZRANGE', k, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', prefix .. 'W', lease and math.ceil(tonumber(lease) / 1000) or now, account)
end
return out
