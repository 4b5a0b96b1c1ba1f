-- Writes what the owner of a partition has decided, all or nothing, while it owns it.
-- KEYS 1 owner, 2 events
-- ARGV 1 the token as the owner knows it, 2 the token from now on, 3 key prefix {tag},
--   4 the batch's events ('': none), 5 how many conditions, 6 how many changes, 7 how many orders
--   have ended, 8 how many accounts have events; then, as named in step.go,
--   conditions: each a key, first and last place, what is there
--   changes: each an order's key, the expected version (8 bytes), status (1 byte), version, time
--     and the estimate that the vendor was told (20 bytes), entries to append
--   ended: each an order's member
--   eventsByAccount: each an account's id and its events
--   commands: each the number of words, and those. Redis has no TRIMLOG key bytes, no PROVE endpoint
--     version and no UNSCHEDULE schedule attempts replayed events: for them the script runs trim_log,
--     prove and unschedule (names.lua)
-- Replies: done and the id of the batch, repeated, lost (another owner), conflict and
--   the places of the orders, among the conditions and then the changes, that were changed
--   by somebody else
-- Repeated call: answers repeated; the token tells.
local stored = call('GET', KEYS[1]) or ''
if stored ~= ARGV[1] then return {stored == ARGV[2] and 'repeated' or 'lost'} end
local conditions, changes, ended, accounts = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local at, heads, conflicts = 9, {}, {'conflict'}
for i = 1, conditions do
  if call('GETRANGE', ARGV[at], ARGV[at + 1], ARGV[at + 2]) ~= ARGV[at + 3] then conflicts[#conflicts + 1] = i end
  at = at + 4
end
local first = at
for i = 1, changes do
  heads[i] = call('GETRANGE', ARGV[at], 2, 11)
  if sub(heads[i], 3) ~= ARGV[at + 1] then conflicts[#conflicts + 1] = conditions + i end
  at = at + 5
end
if #conflicts > 1 then return conflicts end

-- Gateways write to an order, too: what was reported and estimated, and flags, are as they are now.
at = first
for i = 1, changes do
  call('SETRANGE', ARGV[at], 1, ARGV[at + 2] .. sub(heads[i], 1, 2) .. ARGV[at + 3])
  call('APPEND', ARGV[at], ARGV[at + 4])
  at = at + 5
end
local batch = ''
if ARGV[4] ~= '' then batch = call('XADD', KEYS[2], '*', 'm', ARGV[4]) end
if ended > 0 then
  local members = {}
  for i = 1, ended do members[i] = ARGV[at + i - 1] end
  end_orders(ARGV[3], batch, members)
  at = at + ended
end
for _ = 1, accounts do
  index_events(ARGV[3], ARGV[at], batch, 'm', ARGV[at + 1])
  at = at + 2
end
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  if ARGV[at + 1] == 'TRIMLOG' then
    trim_log(ARGV[at + 2], tonumber(ARGV[at + 3]))
  elseif ARGV[at + 1] == 'PROVE' then
    prove(ARGV[at + 2], ARGV[at + 3])
  elseif ARGV[at + 1] == 'UNSCHEDULE' then
    unschedule(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV, at + 5, at + words)
  elseif ARGV[at + 2] ~= 'SETID' then
    call(unpack(ARGV, at + 1, at + words))
  elseif redis.pcall(unpack(ARGV, at + 1, at + words)).err then -- somebody has destroyed the group
    call('XGROUP', 'CREATE', ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], 'MKSTREAM')
  end
  at = at + words + 1
end
call('SET', KEYS[1], ARGV[2])
return {'done', batch}
