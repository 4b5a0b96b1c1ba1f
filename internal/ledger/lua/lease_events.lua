-- Hands out events of a partition's endpoints that need a look: retries that are
-- due, then those never attempted. What a dead worker had leased goes back to
-- the retries. An endpoint whose breaker is open gets one probe at a time.
-- KEYS 1 W
-- ARGV 1 key prefix {tag}, 2 most to hand out, 3 most in flight to one endpoint
--   now, 4 and while it has no limit of its own, 5 lease in us, 6 most endpoints
--   to look at, then for a single endpoint that is paced: 7 account, 8 how many
--   its pace allows, 9 how long to wait for the next in ms
-- Reply: the leases' end in us (the token), when to come back at the latest in
--   ms ('': nothing waits), then a list for each endpoint with leases: account,
--   version, then triples: item, attempts made, due in ms (of a probe that is
--   ahead of its event's schedule: '' for every other); and one for each whose
--   pace must be asked first: account, version, 'paced', events a second, how
--   many could go
-- Repeated call (lost reply): the first lease runs out and its events are
--   handed out again; nothing was sent for them.
local prefix, us = ARGV[1], clock()
local most, share, limit, lease_us = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local token = token_of(us, lease_us)
local reply = {token, ''}

local function take_back_lost_leases(e)
  local lost = call('ZRANGEBYSCORE', e.k, '-inf', us, 'LIMIT', 0, 1000)
  if #lost > 0 then give_back(e, lost) end
end

-- A probe: by turns an event never attempted and one that is due again, else the
-- next to be due, ahead of its schedule and without counting as an attempt of
-- its own; else a ping.
local function probe(e, g)
  if most < 1 or call('ZCARD', e.k) > 0 then return end
  local fresh_first = g.probes % 2 == 0
  if fresh_first and lease_fresh(e, token, 1) > 0 then return end
  if lease_due(e, token, 1) > 0 or lease_fresh(e, token, 1) > 0 then return end
  local early = call('ZRANGE', e.d, 0, 0, 'WITHSCORES')
  if early[1] then
    call('ZREM', e.d, early[1])
    return lease(e, token, {early[1]}, call('HMGET', e.prefix .. 'c' .. e.account, early[1]), early[2])
  end
  if e.url and e.now < g.since + PING_FOR then lease(e, token, {char(PING) .. pack('>I8', e.now)}) end
end

-- Events a second that the endpoint's setting and its recovery allow; nil: any.
local function pace_of(e)
  local rate = e.gate and e.gate.rate > 0 and e.gate.rate
  local pace = tonumber(e.pace)
  return rate and pace and min(rate, pace) or rate or pace
end

local function hand_out(e, permits)
  local g, now = e.gate, e.now
  take_back_lost_leases(e)
  if g and g.forward > 0 then bring_forward(e, g) end
  if g and g.hold > now then return end
  if g and g.open == 1 then return probe(e, g) end
  local free = room(e, most, share, limit)
  if free <= 0 then return end
  local pace = pace_of(e)
  if pace and not permits then
    local could = min(free, call('ZCOUNT', e.d, '-inf', now) + call('LLEN', e.q))
    if could > 0 then reply[#reply + 1] = {e.account, e.version, 'paced', floor(max(pace, 1)), could} end
    return
  end
  if permits then free = min(free, permits) end
  if free > 0 then free = free - lease_due(e, token, free) end
  if free > 0 then lease_fresh(e, token, free) end
end

-- When the endpoint needs its next look; nil: not before something happens.
local function next_look(e)
  local g, at = e.gate, nil
  local leases = call('ZRANGE', e.k, 0, 0, 'WITHSCORES')
  local leased = leases[2] and ceil(tonumber(leases[2]) / 1000)
  local retry = tonumber(call('ZRANGE', e.d, 0, 0, 'WITHSCORES')[2])
  if call('LLEN', e.q) > 0 then at = e.now elseif retry then at = max(retry, e.now) end
  if g and g.open == 1 then
    -- A probe in flight is awaited; its result, or the end of its lease, leads on.
    if leased then return max(g.hold, leased) end
    if at or e.now < g.since + PING_FOR then at = g.hold end
  elseif at and g then
    at = max(at, g.hold)
  end
  if at and at <= e.now then
    if room(e, 1, math.huge, limit) <= 0 then
      at = nil -- full: a result makes room
    elseif room(e, 1, share, limit) <= 0 then
      at = e.now + BUSY -- this process is; another may not be
    end
  end
  if leased and (not at or leased < at) then at = leased end
  return at
end

local function look(e, permits, wait)
  hand_out(e, permits)
  keep_gate(e)
  if #e.out > 0 then
    most = most - #e.out / 3
    reply[#reply + 1] = {e.account, e.version, unpack(e.out)}
  end
  local at = next_look(e)
  if at and wait then at = max(at, e.now + wait) end
  if at then call('ZADD', KEYS[1], at, e.account) else call('ZREM', KEYS[1], e.account) end
end

-- What was planned while Redis's clock was ahead would wait until the clock is
-- there again. So the latest time seen is noted (key C, every CLOCK_STEP, while
-- anything waits), and once the clock is behind it every endpoint's plans are
-- drawn back by as much: it may then be asked earlier than was planned, never
-- later, and an attempt that is under way may be made twice.
local CLOCK_STEP, CLOCK_SLACK = 5000000, 1000000

local function draw_back(account, seen)
  local e, back = open_queue(prefix, account, us), floor((seen - us) / 1000)
  local g = e.gate
  if g then
    if g.hold > e.now then g.hold = max(e.now, g.hold - back) end
    g.since, g.forward, g.changed = min(g.since, e.now), min(g.forward, e.now), true
    keep_gate(e)
  end
  -- Longer leases than this process gives; their tokens keep the holder's digits.
  local leases, moved = call('ZRANGEBYSCORE', e.k, us + 2 * lease_us, '+inf', 'WITHSCORES'), {}
  for i = 1, #leases, 2 do
    moved[i], moved[i + 1] = format('%.0f', tonumber(leases[i + 1]) - back * 1000), leases[i]
  end
  in_parts(moved, 1, function(...) call('ZADD', e.k, ...) end)
  -- Retries that became due by the clock that was ahead.
  local due = {}
  for i, item in ipairs(call('ZRANGEBYSCORE', e.d, e.now, (seen + CLOCK_STEP) / 1000)) do
    due[2 * i - 1], due[2 * i] = e.now, item
  end
  in_parts(due, 1, function(...) call('ZADD', e.d, ...) end)
  call('ZADD', KEYS[1], e.now, account)
end

local function mind_clock()
  local seen = tonumber(call('GET', prefix .. 'C') or 0)
  if us < seen - CLOCK_SLACK then
    for _, account in ipairs(call('ZRANGE', KEYS[1], 0, -1)) do draw_back(account, seen) end
  elseif us < seen + CLOCK_STEP or call('EXISTS', KEYS[1]) == 0 then
    return
  end
  call('SET', prefix .. 'C', format('%.0f', us))
end

if not ARGV[7] then mind_clock() end
if ARGV[7] then
  look(open_queue(prefix, ARGV[7], us), tonumber(ARGV[8]), tonumber(ARGV[9]))
else
  local due = call('ZRANGEBYSCORE', KEYS[1], '-inf', floor(us / 1000), 'LIMIT', 0, ARGV[6])
  local fair = ceil(most / max(#due, 1))
  local left = most
  for _, account in ipairs(due) do
    most = min(fair, left)
    local given = most
    look(open_queue(prefix, account, us))
    left = left - (given - most)
    if left <= 0 then break end
  end
end
reply[2] = call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or ''
return reply
