-- Settles leased events of one endpoint with what became of their attempts, and
-- hands out what may go next. An event that is not leased but waits, as the first
-- in q or in d, can be settled without an attempt; its token is ''.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 most to hand out, 4 most in flight to
--   one endpoint now, 5 and while it has no limit of its own, 6 lease in us,
--   7 failures in a row that open the breaker, then ten for each result:
--   item, token, outcome ('delivered', 'retrying', 'undelivered', 'deferred':
--   not an attempt of the event, 'notSent'; of a ping that failed 'dropped'),
--   next attempt in ms, number of this one, log line ('': none), version of the
--   endpoint that was used, endpoint's state to note ('': none; 'proven':
--   healthy, and the receiver knows the new secret), pause in ms that the
--   endpoint asked for ('': nothing was sent, so the answer is nobody's), bytes of
--   the line before what was answered
-- Reply: one letter for each result (r recorded, l lost: the lease is somebody
--   else's, nothing was changed), the new leases' end in us (the token), whether
--   more could go out (1 or 0), version, then triples: item, attempts made, ''
-- Repeated call (lost reply): answers lost; the new leases run out.
local RESULT = 10
local us = clock()
local e = open_queue(ARGV[1], ARGV[2], us)
local lease_us, breaker = tonumber(ARGV[6]), tonumber(ARGV[7])
local letters, lines, final, tries, settled, forgotten, ended = {}, {}, {}, {}, {}, {}, {}
local raised -- the version after a proof; results of this call still count for the one before

local function settle(item, outcome, next_at, attempts)
  settled[#settled + 1] = item
  if outcome == 'retrying' or outcome == 'deferred' then
    call('ZADD', e.d, next_at, item)
    if outcome == 'retrying' then call('HSET', e.prefix .. 'c' .. e.account, item, attempts) end
    return
  end
  if attempts ~= '1' then
    forgotten[#forgotten + 1] = item -- before a second attempt there is nothing to forget
  end
  if byte(item, 1) ~= 1 and byte(item, 1) ~= PING then ended[#ended + 1] = first_item(item) end
end

-- Whether an event is this caller's to settle. One that waits leaves its place.
local function takes(item, token, leased_until)
  if token ~= '' then return leased_until and tonumber(leased_until) == tonumber(token) end
  if call('LINDEX', e.q, 0) == item then return call('LPOP', e.q) end
  return call('ZREM', e.d, item) == 1
end

local function end_attempt(item)
  if byte(item, 1) ~= 1 then return end
  local key = e.prefix .. 'o' .. sub(item, 2, 13)
  local head = order_head(key)
  if head == '' or order_day(head) ~= sub(item, 14, 15) then return end
  local ended = parse('>I4', item, 16)
  local queued, attempted = parse('>I4I4', head, 21)
  local _, sequence = parse('>I4I4', head, 5)
  if ended > attempted then
    queue_next(e, key, sub(item, 2, 15), max(queued, ended), ended, sequence)
  end
end

local function note_state(state)
  if state == 'proven' then
    call('HSET', e.w, 'proven', '1')
    raised = call('HINCRBY', e.w, 'version', 1)
    state = 'healthy'
  end
  -- failing is milder than unreachable and gone
  local worse = state ~= 'failing' or not e.state or e.state == 'healthy'
  if e.state ~= state and worse then
    call('HSET', e.w, 'state', state, 'since', e.now)
    e.state = state
  end
end

local function judge(outcome, state, pause)
  local t, ok = tally(e), state == 'healthy' or state == 'proven'
  if pause then
    if ok then t[2] = t[2] + 1 else t[3] = t[3] + 1 end
  end
  if outcome == 'delivered' then t[7] = t[7] + 1
  elseif outcome == 'retrying' then t[8] = t[8] + 1
  elseif outcome == 'undelivered' then t[9] = t[9] + 1
  elseif outcome == 'notSent' then t[10] = t[10] + 1 end
end

local items = {}
for i = 8, #ARGV, RESULT do items[#items + 1] = ARGV[i] end
local leases = call('ZMSCORE', e.k, unpack(items))
for n, item in ipairs(items) do
  local i = 8 + (n - 1) * RESULT
  if takes(item, ARGV[i + 1], leases[n]) then
    letters[n] = 'r'
    local outcome, line, state, pause = ARGV[i + 2], ARGV[i + 5], ARGV[i + 7], tonumber(ARGV[i + 8])
    -- What failed at an address that has changed since goes to the new one now.
    local moved = tonumber(ARGV[i + 6]) < e.moved
    settle(item, outcome, moved and e.now or ARGV[i + 3], ARGV[i + 4])
    end_attempt(item)
    if line ~= '' then
      lines[#lines + 1] = line
      if outcome == 'undelivered' or outcome == 'notSent' or outcome == 'delivered' and byte(item, 1) ~= PING then
        final[#final + 1] = line
      elseif outcome == 'retrying' or outcome == 'deferred' then
        tries[#tries + 1] = sub(line, 1, tonumber(ARGV[i + 9])) .. '\0' -- an empty answer
      end
    end
    judge(byte(item, 1) == PING and 'dropped' or outcome, state, pause) -- a ping is no event
    if state ~= '' and e.version == ARGV[i + 6] then
      note_state(state)
      if pause then
        if state == 'healthy' or state == 'proven' then note_success(e) else note_failure(e, pause, breaker) end
      end
    end
  else
    letters[n] = 'l'
  end
end
if #settled > 0 then call('ZREM', e.k, unpack(settled)) end
if #forgotten > 0 then call('HDEL', e.prefix .. 'c' .. e.account, unpack(forgotten)) end
if #ended > 0 then call('HDEL', e.b, unpack(ended)) end
if #lines > 0 then log_attempts(e, lines) end
if #final > 0 then publish_outcomes(e, final) end
if #tries > 0 then publish_tries(e, tries) end
local token = token_of(us, lease_us)
local more = serve(e, token, tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), lease_us)
end_recovery(e)
keep_gate(e)
keep_tally(e)
return {table.concat(letters), token, more and 1 or 0, tostring(raised or e.version), unpack(e.out)}
