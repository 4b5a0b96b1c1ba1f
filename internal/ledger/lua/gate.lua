-- The gate of a webhook endpoint: what keeps its queue from being sent as fast
-- as it fills. It is the field gate of the endpoint's hash, absent while nothing
-- holds the queue back (webhooks.go reads it too). Times in ms.
--   hold     nothing is handed out before
--   open     1: the breaker is open; one event at a time goes out, as a probe
--   failures attempts that failed since the last success
--   probes   those of them that failed since the breaker opened
--   rate     events a second while the endpoint recovers; 0: as many as it takes
--   calm     the rate below which it grows fast; 0: it always does
--   forward  retries due after this are yet to be brought forward; 0: none
--   since    when the breaker opened
local GATE = '>I8BHHddI8I8'

local FIRST_PROBE, LAST_PROBE = 1000, 30000  -- pauses between probes, doubling
local FIRST_RATE, FULL_RATE = 10, 2000       -- events a second
local SHORT_PAUSE, LONG_PAUSE = 1000, 3600000 -- after 429, 502, 503, 504
local PING_FOR = 72 * 3600000                -- how long an empty queue is probed

local function read_gate(text)
  local g = {}
  g.hold, g.open, g.failures, g.probes, g.rate, g.calm, g.forward, g.since = parse(GATE, text)
  return g
end

local function new_gate()
  return {hold = 0, open = 0, failures = 0, probes = 0, rate = 0, calm = 0, forward = 0, since = 0}
end

-- Writes the gate if it has changed, and drops one that holds nothing back.
local function keep_gate(e)
  local g = e.gate
  if not g or not g.changed then return end
  if g.hold <= e.now and g.open == 0 and g.failures == 0 and g.rate == 0 and g.forward == 0 then
    call('HDEL', e.w, 'gate')
    e.gate = nil
  else
    call('HSET', e.w, 'gate', pack(GATE, g.hold, g.open, g.failures, g.probes, g.rate, g.calm, g.forward, g.since))
  end
end

-- An endpoint that answers again, or a new one with a backlog, gets it slowly
-- first, and gets all of it: retries that were postponed by hours included.
local function start_slowly(e, g)
  g.hold, g.open, g.failures, g.probes, g.calm = 0, 0, 0, 0, 0
  g.rate, g.forward, g.changed = FIRST_RATE, e.now, true
end

-- The next probe. An event that is due about then by its own schedule is waited
-- for, so that a lone event keeps to its schedule to the millisecond.
local function plan_probe(e, g, pause)
  local gap = min(LAST_PROBE, FIRST_PROBE * 2 ^ min(g.probes, 5))
  local at = e.now + max(gap, pause)
  local first = tonumber(call('ZRANGE', e.d, 0, 0, 'WITHSCORES')[2] or 0)
  if first > e.now and first <= at + gap and first >= e.now + pause then
    at = max(first, e.now + FIRST_PROBE)
  end
  g.hold = max(g.hold, at) -- opening it does not shorten what was asked for
end

-- What an attempt tells of the endpoint. pause: how long it asks to be left
-- alone; 0: it does not.
local function note_failure(e, pause, breaker)
  local g = e.gate or new_gate()
  e.gate, g.changed = g, true
  g.failures = min(g.failures + 1, 65535)
  pause = min(pause, LONG_PAUSE)
  if e.now < g.hold and (g.open == 1 or g.failures < breaker) then
    -- What was in flight when the endpoint was held tells nothing new, but that
    -- it may ask for longer.
    g.hold = max(g.hold, e.now + pause)
  elseif g.open == 1 then
    g.probes = min(g.probes + 1, 65535)
    plan_probe(e, g, pause)
  elseif g.failures >= breaker then
    g.open, g.probes, g.since, g.rate, g.forward = 1, 0, e.now, 0, 0
    plan_probe(e, g, pause)
  elseif pause > 0 then -- one step down for all that were in flight
    g.rate = max(1, g.rate > 0 and g.rate / 2 or FIRST_RATE)
    g.calm = g.rate
    g.hold = e.now + max(pause, SHORT_PAUSE)
  end
end

-- The rate grows by one with every success, which is nearly threefold a second,
-- up to the last one that was borne, and by ten a second from there on, counted
-- from the end of the pause, so that little traffic does not make it last.
local function note_success(e)
  local g = e.gate
  if not g then return end
  g.changed = true
  if g.open == 1 then return start_slowly(e, g) end
  g.failures = 0
  if g.rate > 0 then
    if g.calm > 0 and g.rate >= g.calm then
      g.rate = max(g.rate, g.calm + (e.now - g.hold) / 100)
    else
      g.rate = g.rate + 1
    end
    if g.rate >= FULL_RATE then g.rate, g.calm = 0, 0 end
  end
end

-- Once nothing waits the recovery is over, unless the endpoint asked to be spared
-- on the way: then its pace goes on growing by what it bears.
local function end_recovery(e)
  local g = e.gate
  if not g or g.open == 1 or g.rate == 0 or g.calm > 0 then return end
  if call('LLEN', e.q) + call('ZCARD', e.d) == 0 then g.rate, g.forward, g.changed = 0, 0, true end
end

-- Retries of the time before the recovery become due, a thousand with every
-- look, whatever gap their schedule had reached.
local function bring_forward(e, g)
  local retries = call('ZRANGEBYSCORE', e.d, max(g.forward, e.now + 1), '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  local due = {}
  for i = 1, #retries, 2 do due[i], due[i + 1] = e.now, retries[i] end
  if #due > 0 then call('ZADD', e.d, unpack(due)) end
  g.forward = #retries == 2000 and tonumber(retries[2000]) or 0
  g.changed = true
end
