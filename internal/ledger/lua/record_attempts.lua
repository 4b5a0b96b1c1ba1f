-- Settles leased events of one endpoint with what became of their attempts.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 now in ms, then eight for each result:
--   item, token, outcome ('delivered', 'retrying', 'undelivered', 'deferred':
--   postponed without an attempt, 'notSent'), next attempt in ms, attempts
--   made, log record ('': none), version of the endpoint that was used,
--   endpoint's state to note ('': none; 'proven': healthy, and the receiver
--   knows the new secret)
-- Reply: one letter for each result: r recorded, l lost (the lease is somebody
--   else's; nothing was changed)
-- Repeated call: answers lost.
local RESULT = 8
local prefix, account, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local d, k, c = prefix .. 'd' .. account, prefix .. 'k' .. account, prefix .. 'c' .. account
local known = call('HMGET', KEYS[1], 'version', 'state')
local reply, records, outcomes = {}, {}, {}

local function settle(item, outcome, next_at, attempts)
  if outcome == 'retrying' or outcome == 'deferred' then
    call('ZADD', d, next_at, item)
    if attempts ~= '0' then call('HSET', c, item, attempts) end
  elseif attempts ~= '1' then
    call('HDEL', c, item) -- after a first attempt there is nothing to forget
  end
end

local function end_attempt(item)
  if byte(item, 1) ~= 1 then return end
  local key = prefix .. 'o' .. sub(item, 2, 13)
  local head = order_head(key)
  if head == '' or order_day(head) ~= sub(item, 14, 15) then return end
  local ended = parse('>I4', item, 16)
  local queued, attempted = parse('>I4I4', head, 21)
  local _, sequence = parse('>I4I4', head, 5)
  if ended > attempted then
    queue_next(prefix, key, account, sub(item, 2, 15), max(queued, ended), ended, sequence)
  end
end

local function note_state(version, state)
  if state == '' or known[1] ~= version then return end
  if state == 'proven' then
    call('HSET', KEYS[1], 'proven', '1')
    state = 'healthy'
  end
  -- failing is milder than unreachable and gone
  local worse = state ~= 'failing' or not known[2] or known[2] == 'healthy'
  if known[2] ~= state and worse then
    call('HSET', KEYS[1], 'state', state, 'since', ARGV[3])
    known[2] = state
  end
end

for i = 4, #ARGV, RESULT do
  local item, token, outcome, record = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 5]
  local lease = call('ZSCORE', k, item)
  if lease and tonumber(lease) == tonumber(token) then
    call('ZREM', k, item)
    settle(item, outcome, ARGV[i + 3], ARGV[i + 4])
    end_attempt(item)
    if record ~= '' then records[#records + 1] = record end
    if outcome ~= 'deferred' then outcomes[outcome] = (outcomes[outcome] or 0) + 1 end
    note_state(ARGV[i + 6], ARGV[i + 7])
    reply[#reply + 1] = 'r'
  else
    reply[#reply + 1] = 'l'
  end
end
if #records > 0 then log_attempts(prefix, account, records) end
for outcome, n in pairs(outcomes) do call('HINCRBY', KEYS[1], outcome, n) end
reschedule(prefix, account, now)
return table.concat(reply)
