-- Stores a store if its revision is still the one that was read and the account's
-- limits of stores allow it, keeps the lists of its fleet and account and the list
-- of accounts with stores (listings.go), sets or clears its closing timer, and
-- publishes what happened to it.
-- KEYS 1 store, 2 account's stores, 3 closings, 4 events, 5 account, 6 how many
--   of the account's stores wait for each fleet
-- ARGV 1 expected revision (8 bytes, zero for a new store), 2 record
--   (state at 2, revision at 3, fleet at 11), 3 store digest, 4 end of the
--   closing day in ms (0: not closing), 5 key prefix {tag}, 6 lifetime of a
--   notice in ms, then pairs: event id, notice
--   (account at 1)
-- Replies: written; conflict (the revision is another); too_many_stores and
--   too_many_pending, each with a line feed and the limit that is reached: nothing
--   is written. An account without such a limit, or that does not exist, has none.
-- Repeated call: the revision has moved on, so it answers conflict; the caller
--   reads again and finds its own change.
local NO_REVISION, NO_FLEET = string.rep('\0', 8), string.rep('\0', 16)
local ANY_STATE, AWAITING_FLEET_APPROVAL = '\0', '\2'
local STATE, REVISION_FIRST, REVISION_LAST, FLEET_FIRST, FLEET_LAST = 2, 3, 10, 11, 26

local record, digest, prefix = ARGV[2], ARGV[3], ARGV[5]
local account = sub(KEYS[5], -16)

local function state_of(stored) return sub(stored, STATE, STATE) end
local function fleet_of(stored) return sub(stored, FLEET_FIRST, FLEET_LAST) end
local function has_fleet(stored) return stored ~= '' and fleet_of(stored) ~= NO_FLEET end
local function is_pending(stored) return has_fleet(stored) and state_of(stored) == AWAITING_FLEET_APPROVAL end

-- A fleet's lists that a store stands in: its state's, and the one of all states.
local function list_of(state, stored) return prefix .. 'F' .. state .. fleet_of(stored) end

local function remove_from_lists(stored)
  call('ZREM', list_of(state_of(stored), stored), digest)
  call('ZREM', list_of(ANY_STATE, stored), digest)
end

local function add_to_lists(stored)
  call('ZADD', list_of(state_of(stored), stored), 0, digest)
  call('ZADD', list_of(ANY_STATE, stored), 0, digest)
end

local function exceeds(count, limit) return limit and limit > 0 and count >= limit end

local old = call('GETRANGE', KEYS[1], 0, FLEET_LAST - 1)
local is_new = old == ''
local revision = is_new and NO_REVISION or sub(old, REVISION_FIRST, REVISION_LAST)
if revision ~= ARGV[1] then return 'conflict' end

local moves = is_new or state_of(old) ~= state_of(record) or fleet_of(old) ~= fleet_of(record)
local becomes_pending = moves and is_pending(record)
if is_new or becomes_pending then
  local limits = call('HGET', KEYS[5], 'limits')
  limits = limits and cjson.decode(limits) or {}

  if is_new and exceeds(call('SCARD', KEYS[2]), limits.maxStores) then
    return 'too_many_stores\n' .. limits.maxStores
  end

  if becomes_pending and exceeds(tonumber(call('HGET', KEYS[6], fleet_of(record)) or 0), limits.maxPendingStores) then
    return 'too_many_pending\n' .. limits.maxPendingStores
  end
end

call('SET', KEYS[1], record)
call('SADD', KEYS[2], digest)
if is_new then call('ZADD', prefix .. 'Wt', 0, account) end

if moves then
  if has_fleet(old) then remove_from_lists(old) end
  if has_fleet(record) then add_to_lists(record) end
  if is_pending(old) then
    -- Below zero is a count that was lost; kept, it would admit one store too many.
    local waiting = call('HINCRBY', KEYS[6], fleet_of(old), -1)
    if waiting <= 0 then call('HDEL', KEYS[6], fleet_of(old)) end
  end
  if is_pending(record) then call('HINCRBY', KEYS[6], fleet_of(record), 1) end
end

if ARGV[4] == '0' then
  call('ZREM', KEYS[3], digest)
else
  call('ZADD', KEYS[3], ARGV[4], digest)
end

for i = 7, #ARGV, 2 do
  call('SET', prefix .. 'n' .. ARGV[i], ARGV[i + 1], 'PX', ARGV[6])
  local id = call('XADD', KEYS[4], '*', 'e', '\2' .. ARGV[i])
  index_events(prefix, sub(ARGV[i + 1], 2, 17), id, 'e', '\2' .. ARGV[i])
end

return 'written'
