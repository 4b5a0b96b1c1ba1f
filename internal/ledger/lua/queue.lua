-- A webhook endpoint's queue: q never attempted (list), d to be tried again
-- (zset, ms), k leased (zset, the lease's end in us, which is also its token),
-- c attempts made (hash). W tells when each account's queue needs a look.
-- Items: '\1' digest day sequence (an order's version), the same with '\129'
-- and 8 more bytes for a replay (its time in ms), '\2' event id for a notice.

-- Sets W to when this queue can next hand something out; due tells that it can
-- now, but for the caller's limits.
local function reschedule(prefix, account, now)
  local q, d, k = prefix .. 'q' .. account, prefix .. 'd' .. account, prefix .. 'k' .. account
  local at
  if call('LLEN', q) > 0 then at = now end
  local retry = call('ZRANGE', d, 0, 0, 'WITHSCORES')[2]
  if retry and (not at or tonumber(retry) < at) then at = max(now, tonumber(retry)) end
  local lease = call('ZRANGE', k, 0, 0, 'WITHSCORES')[2]
  if lease and (not at or tonumber(lease) / 1000 < at) then at = ceil(tonumber(lease) / 1000) end
  if at then
    call('ZADD', prefix .. 'W', at, account)
  else
    call('ZREM', prefix .. 'W', account)
  end
end

-- For one order only the version after the last attempted one is queued; the
-- end of its first attempt queues the next (notes, "Webhook queues"). queued
-- and attempted are sequences in the order's head.
local function queue_next(prefix, key, account, member, queued, attempted, sequence)
  if sequence > attempted then
    call('RPUSH', prefix .. 'q' .. account, '\1' .. member .. pack('>I4', attempted + 1))
    queued = attempted + 1
  end
  call('SETRANGE', key, 20, pack('>I4I4', queued, attempted))
end

-- Keeps the newest 200 attempts of an endpoint, and at most 256 kB. The newest
-- of records comes last.
local function log_attempts(prefix, account, records)
  local g, w = prefix .. 'g' .. account, prefix .. 'w' .. account
  local added = 0
  for _, record in ipairs(records) do added = added + #record end
  local length = call('LPUSH', g, unpack(records))
  local dropped = 0
  if length > 200 then
    for _, record in ipairs(call('RPOP', g, length - 200)) do dropped = dropped + #record end
  end
  local bytes = call('HINCRBY', w, 'log', added - dropped)
  while bytes > 262144 do
    local record = call('RPOP', g)
    if not record then break end
    bytes = call('HINCRBY', w, 'log', -#record)
  end
end
