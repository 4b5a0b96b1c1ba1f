-- Moves events from the partition's stream to the queues of their accounts'
-- endpoints, and acknowledges them.
-- KEYS 1 events
-- ARGV 1 key prefix {tag}, 2 consumer group, 3 now in ms, then triples: stream
--   id, event ('' settles the entry without an effect), for a notice its
--   account (16 bytes), for an order's version ''
-- Reply: how many were queued. An account without an endpoint gets nothing; its
--   events are logged as not sent ('\3', ms, event).
-- Repeated call: the sequences in the order's head show what was queued, and of
--   a notice that its entry is acknowledged.
local prefix, now = ARGV[1], tonumber(ARGV[3])
local ids, touched, registered, queued_now = {}, {}, {}, 0

local function has_endpoint(account, event)
  if registered[account] == nil then
    registered[account] = call('HEXISTS', prefix .. 'w' .. account, 'url') == 1
  end
  if not registered[account] then
    call('HINCRBY', prefix .. 'w' .. account, 'notSent', 1)
    log_attempts(prefix, account, {'\3' .. pack('>I8', now) .. event})
  end
  return registered[account]
end

local function queue_version(event)
  local member = sub(event, 2, 15)
  local _, sequence = parse('>I4I4', sub(event, 16, 23))
  local key = prefix .. 'o' .. sub(event, 2, 13)
  local head = order_head(key)
  if sequence < 2 or head == '' or order_day(head) ~= sub(event, 14, 15) then return end
  local account = order_account(head)
  local queued, attempted = parse('>I4I4', sub(head, 21, 28))
  if sequence <= queued then return end
  if not has_endpoint(account, event) then
    call('SETRANGE', key, 20, pack('>I4I4', sequence, sequence))
  elseif queued == attempted then
    queue_next(prefix, key, account, member, queued, attempted, sequence)
    touched[account], queued_now = true, queued_now + 1
  end
end

for i = 4, #ARGV, 3 do
  local event, account = ARGV[i + 1], ARGV[i + 2]
  if byte(event, 1) == 2 then
    if call('XACK', KEYS[1], ARGV[2], ARGV[i]) == 1 and account ~= '' and has_endpoint(account, event) then
      call('RPUSH', prefix .. 'q' .. account, event)
      touched[account], queued_now = true, queued_now + 1
    end
  else
    ids[#ids + 1] = ARGV[i]
    if event ~= '' then queue_version(event) end
  end
end
for account in pairs(touched) do reschedule(prefix, account, now) end
if #ids > 0 then call('XACK', KEYS[1], ARGV[2], unpack(ids)) end
return queued_now
