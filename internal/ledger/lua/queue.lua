-- A webhook endpoint's queue: q never attempted (list), d to be tried again
-- (zset, ms), k leased (zset, the lease's end in us, which is also its token),
-- c attempts made (hash, for those in d), b which notices and replays wait in any
-- of them (hash: the event as its first item, the item). W tells when each
-- account's queue needs a look; too early is harmless, too late is not.
-- Items: '\1' digest day sequence (an order's version), '\129' the same and 8
-- more bytes for a replay (its time in ms), '\2' event id for a notice, '\130'
-- time and event id for its replay, '\4' time for a ping.
local PING = 4
local BUSY = 100 -- ms until another process looks at what one was too busy for
local LEASE_STEP = 5000 -- looks for lost leases are rounded up, so that W is written rarely

-- An endpoint as a script works on it. us is the clock. Clocks of workers only
-- decide when to retry.
local function open_queue(prefix, account, us)
  local w = prefix .. 'w' .. account
  local known = call('HMGET', w, 'url', 'version', 'gate', 'tally', 'state', 'in_flight', 'pace', 'moved')
  return {
    prefix = prefix, account = account, us = us, now = floor(us / 1000), w = w,
    q = prefix .. 'q' .. account, d = prefix .. 'd' .. account, k = prefix .. 'k' .. account,
    b = prefix .. 'b' .. account,
    url = known[1], version = known[2] or '0', gate = known[3] and read_gate(known[3]), tally = known[4],
    state = known[5], in_flight = known[6], pace = known[7],
    moved = tonumber(known[8] or 0), ready = {}, out = {},
  }
end

-- Passes a list on in parts: Lua spreads no more than 8000 values at once.
local function in_parts(values, first, pass)
  for i = first, #values, 4000 do pass(unpack(values, i, min(i + 3999, #values))) end
end

-- For one order only the version after the last attempted one is queued; the
-- end of its first attempt queues the next. queued and attempted are sequences
-- in the order's head.
local function queue_next(e, key, member, queued, attempted, sequence)
  if sequence > attempted then
    e.ready[#e.ready + 1] = '\1' .. member .. pack('>I4', attempted + 1)
    queued = attempted + 1
  end
  call('SETRANGE', key, 20, pack('>I4I4', queued, attempted))
end

-- The item under which an event was queued first.
local function first_item(item)
  if byte(item, 1) == 129 then return '\1' .. sub(item, 2, 19) end
  if byte(item, 1) == 130 then return '\2' .. sub(item, 10) end
  return item
end

-- The token of a lease: its end in us, of which the last three digits name who
-- holds it (lease_us has them), so that a process that starts again finds what it
-- had (release_leases.lua).
local function token_of(us, lease_us) return format('%.0f', floor(us / 1000) * 1000 + lease_us) end

local function lease(e, token, items, attempts, due)
  local leases, out = {}, e.out
  for i, item in ipairs(items) do
    leases[2 * i - 1], leases[2 * i] = token, item
    out[#out + 1] = item
    out[#out + 1] = attempts and attempts[i] or '0'
    out[#out + 1] = due or ''
  end
  call('ZADD', e.k, unpack(leases))
end

-- What was leased and has no result goes back to the retries, as due now. A ping
-- was for once.
local function give_back(e, items)
  call('ZREM', e.k, unpack(items))
  for _, item in ipairs(items) do
    if byte(item, 1) ~= PING then call('ZADD', e.d, e.now, item) end
  end
end

local function lease_due(e, token, most)
  local items = call('ZRANGEBYSCORE', e.d, '-inf', e.now, 'LIMIT', 0, most)
  if #items == 0 then return 0 end
  call('ZREM', e.d, unpack(items))
  lease(e, token, items, call('HMGET', e.prefix .. 'c' .. e.account, unpack(items)))
  return #items
end

local function lease_fresh(e, token, most)
  local items = call('LPOP', e.q, most)
  if not items then return 0 end
  lease(e, token, items)
  return #items
end

-- What one process gives: most events in all, share and limit of those in flight
-- to one endpoint: now, and while it has no limit of its own.
local function room(e, most, share, limit)
  return min(most, min(share, tonumber(e.in_flight or limit)) - call('ZCARD', e.k))
end

local function look_at(e, at) call('ZADD', e.prefix .. 'W', 'LT', at, e.account) end

-- Hands out what may go right now and puts the rest behind it: retries that are
-- due, then what waits, then what has become ready. A gate that is not wide open
-- leaves everything to lease_events. Returns whether more could go out: an
-- endpoint that has all it may have is looked at again with the next result, and
-- not before. Without that a full one costs a look for every result.
local function serve(e, token, most, share, limit, lease_us)
  local g, ready = e.gate, e.ready
  local held = e.pace or g and (g.open == 1 or g.rate > 0 or g.forward > 0 or g.hold > e.now)
  local in_flight, most_of_all = call('ZCARD', e.k), tonumber(e.in_flight or limit)
  local free = held and 0 or min(most, min(share, most_of_all) - in_flight)
  local retry = tonumber(call('ZRANGE', e.d, 0, 0, 'WITHSCORES')[2])
  if free > 0 and retry and retry <= e.now then
    free = free - lease_due(e, token, free)
    retry = tonumber(call('ZRANGE', e.d, 0, 0, 'WITHSCORES')[2])
  end
  local waiting = call('LLEN', e.q)
  if free > 0 and waiting > 0 then
    local gone = lease_fresh(e, token, free)
    free, waiting = free - gone, waiting - gone
  end
  local first = 1
  if free > 0 and #ready > 0 then
    first = min(free, #ready) + 1
    local items = {}
    for i = 1, first - 1 do items[i] = ready[i] end
    lease(e, token, items)
  end
  if first <= #ready then
    in_parts(ready, first, function(...) call('RPUSH', e.q, ...) end)
    waiting = waiting + #ready - first + 1
  end
  if g and (g.open == 1 or g.forward > 0) then
    look_at(e, max(g.hold, e.now))
    return g.hold <= e.now
  end
  local lost = ceil((e.now + lease_us / 1000) / LEASE_STEP) * LEASE_STEP
  if waiting > 0 or retry and retry <= e.now then
    in_flight = in_flight + #e.out / 3
    if most > 0 and not held and in_flight >= min(share, most_of_all) then
      look_at(e, in_flight < most_of_all and e.now + BUSY or lost)
      return false
    end
    look_at(e, g and max(g.hold, e.now) or e.now)
    return true
  end
  look_at(e, retry and min(retry, lost) or lost)
  return false
end
