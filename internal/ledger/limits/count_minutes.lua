-- Adds one process's counts of an account's requests to those of the current
-- minute, and marks the account once it has exceeded its limits for long enough
-- (decisions, "Limits and idempotency"). The mark goes when the excess does: at
-- excess_until for whoever reads it, because a silent account has no further call.
-- The list of accounts in excess has the end as score; a silent account stays in it
-- until its next call, and is passed over.
-- KEYS 1 minutes, 2 account, 3 accounts in excess
-- ARGV 1 minute, 2 requests, 3 refused among them, 4 minutes looked back on,
--   5 minutes with excess that make it sustained, 6 now in ms, 7 account (16 bytes)
-- Reply: how many of the minutes were mostly refused
-- Repeated call: counts twice, in a figure that decides nothing by itself.
call('HINCRBY', KEYS[1], ARGV[1] .. ':all', ARGV[2])
call('HINCRBY', KEYS[1], ARGV[1] .. ':refused', ARGV[3])
call('EXPIRE', KEYS[1], 3600)
local minute, span, sustained = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[5])
local excess, ends = 0, 0
local counts = call('HGETALL', KEYS[1])
local by_field = {}
for i = 1, #counts, 2 do
  by_field[counts[i]] = tonumber(counts[i + 1])
  if tonumber(string.match(counts[i], '^%d+')) <= minute - span then call('HDEL', KEYS[1], counts[i]) end
end
for m = minute, minute - span + 1, -1 do
  if (by_field[m .. ':refused'] or 0) * 2 > (by_field[m .. ':all'] or 0) then
    excess = excess + 1
    if excess == sustained then ends = (m + span) * 60000 end
  end
end
if call('EXISTS', KEYS[2]) == 1 then
  if excess >= sustained then
    call('HSETNX', KEYS[2], 'excess', ARGV[6])
    call('HSET', KEYS[2], 'excess_until', format('%d', ends))
    call('ZADD', KEYS[3], ends, ARGV[7])
  elseif call('HDEL', KEYS[2], 'excess', 'excess_until') > 0 then
    call('ZREM', KEYS[3], ARGV[7])
  end
end
return excess
