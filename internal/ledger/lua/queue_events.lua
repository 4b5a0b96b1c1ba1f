-- Moves events from the partition's stream to the queues of their accounts'
-- endpoints, hands out what may be sent at once, and acknowledges them.
-- KEYS 1 events
-- ARGV 1 key prefix {tag}, 2 consumer group, 3 most to hand out, 4 most in
--   flight to one endpoint now, 5 and while it has no limit of its own, 6 lease
--   in us, then triples: stream id, event ('' settles the entry without an
--   effect), for a notice its account (16 bytes), for an order's version ''
-- Reply: the leases' end in us (the token), whether more could go out (1 or 0),
--   then a list for each endpoint with leases: account, version, then triples:
--   item, attempts made, ''. An account without an endpoint gets nothing; its
--   events are logged as not sent ('\3', ms, event).
-- Repeated call (lost reply): the sequences in the order's head show what was
--   queued, and of a notice that its entry is acknowledged; the leases run out.
local prefix, us = ARGV[1], clock()
local most, share, limit, lease_us = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local token = token_of(us, lease_us)
local ids, queues, touched = {}, {}, {}

local function queue_of(account)
  local e = queues[account]
  if not e then
    e = open_queue(prefix, account, us)
    queues[account], touched[#touched + 1] = e, e
  end
  return e
end

local function not_sent(e, event)
  local line, t = '\3' .. pack('>I8', e.now) .. event, tally(e)
  t[10] = t[10] + 1
  log_attempts(e, {line})
  publish_outcomes(e, {line})
end

local function queue_version(event)
  local member = sub(event, 2, 15)
  local _, sequence = parse('>I4I4', sub(event, 16, 23))
  local key = prefix .. 'o' .. sub(event, 2, 13)
  local head = order_head(key)
  if sequence < 2 or head == '' or order_day(head) ~= sub(event, 14, 15) then return end
  local queued, attempted = parse('>I4I4', sub(head, 21, 28))
  -- While an earlier version waits, the end of its attempt queues the next.
  if sequence <= queued or queued ~= attempted then return end
  local e = queue_of(order_account(head))
  if e.url then return queue_next(e, key, member, queued, attempted, sequence) end
  not_sent(e, event)
  call('SETRANGE', key, 20, pack('>I4I4', sequence, sequence))
end

for i = 7, #ARGV, 3 do
  local event, account = ARGV[i + 1], ARGV[i + 2]
  if byte(event, 1) == 2 then
    if call('XACK', KEYS[1], ARGV[2], ARGV[i]) == 1 and account ~= '' then
      local e = queue_of(account)
      if not e.url then not_sent(e, event)
      elseif call('HSETNX', e.b, event, event) == 1 then e.ready[#e.ready + 1] = event end
    end
  else
    ids[#ids + 1] = ARGV[i]
    if event ~= '' then queue_version(event) end
  end
end
local reply = {token, 0}
for _, e in ipairs(touched) do
  if #e.ready > 0 then
    if serve(e, token, most, share, limit, lease_us) then reply[2] = 1 end
    most = most - #e.out / 3
    if #e.out > 0 then reply[#reply + 1] = {e.account, e.version, unpack(e.out)} end
  end
  keep_tally(e)
end
in_parts(ids, 1, function(...) call('XACK', KEYS[1], ARGV[2], ...) end)
return reply
