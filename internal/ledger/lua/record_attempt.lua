-- Settles a leased event with what became of its attempt.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 item, 4 token, 5 outcome: 'delivered',
--   'retrying', 'undelivered', 'deferred' (postponed without an attempt),
--   'notSent', 6 next attempt in ms, 7 attempts made, 8 log record ('': none),
--   9 now in ms, 10 version of the endpoint that was used, 11 endpoint's state
--   to note ('': none), 12 '1': the endpoint has proven its new secret
-- Replies: recorded, lost (the lease is somebody else's; nothing was changed)
-- Repeated call: answers lost.
local prefix, account, item, outcome = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local d, k, c = prefix .. 'd' .. account, prefix .. 'k' .. account, prefix .. 'c' .. account
local token = call('ZSCORE', k, item)
if not token or tonumber(token) ~= tonumber(ARGV[4]) then return 'lost' end
call('ZREM', k, item)
if outcome == 'retrying' or outcome == 'deferred' then
  call('ZADD', d, ARGV[6], item)
  if ARGV[7] ~= '0' then call('HSET', c, item, ARGV[7]) end
else
  call('HDEL', c, item)
end

if byte(item, 1) == 1 then
  local key = prefix .. 'o' .. sub(item, 2, 13)
  local head = order_head(key)
  if head ~= '' and order_day(head) == sub(item, 14, 15) then
    local ended = parse('>I4', sub(item, 16, 19))
    local queued, attempted = parse('>I4I4', sub(head, 21, 28))
    local _, sequence = parse('>I4I4', sub(head, 5, 12))
    if ended > attempted then
      queue_next(prefix, key, account, sub(item, 2, 15), max(queued, ended), ended, sequence)
    end
  end
end

if ARGV[8] ~= '' then log_attempt(prefix, account, ARGV[8]) end
if outcome ~= 'deferred' then call('HINCRBY', KEYS[1], outcome, 1) end
local known = call('HMGET', KEYS[1], 'version', 'state')
local worse = ARGV[11] ~= 'failing' or not known[2] or known[2] == 'healthy' -- failing is milder than unreachable and gone
if ARGV[11] ~= '' and known[1] == ARGV[10] and known[2] ~= ARGV[11] and worse then
  call('HSET', KEYS[1], 'state', ARGV[11], 'since', ARGV[9])
end
if ARGV[12] == '1' and known[1] == ARGV[10] then call('HSET', KEYS[1], 'proven', '1') end
reschedule(prefix, account, tonumber(ARGV[9]))
return 'recorded'
