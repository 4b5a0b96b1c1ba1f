-- Names for what everything below calls, looked up once instead of twice with
-- every use. While a library is loaded it may not touch anything global, so the
-- first operation to run fills them in (script.go).
local call, pack, parse, byte, char, find, format, sub, ceil, floor, max, min

-- How long the events of an account's own stream are kept, in ms, and the key after its last
-- entry, in seconds: 25 and 26 hours.
local ACCOUNT_EVENTS_KEPT, ACCOUNT_EVENTS_KEY_KEPT = 90000000, 93600

-- Tells the partition's owner, if there is one, that an endpoint has changed, or that
-- something was scheduled for it. Whoever takes the partition over reads all anyway.
local function note(notes, account) call('XADD', notes, 'MAXLEN', '~', 1000, '*', 'w', account) end

-- Repeats an entry of the partition's events in the stream of the account that it belongs
-- to, under the same id, so that a replay reads its own account's day and nobody else's.
-- What is older than a replay reaches leaves with the next entry, or with the key.
local function index_events(prefix, account, id, field, events)
  local key = prefix .. 'E' .. account
  local oldest = tonumber(string.match(id, '^%d+')) - ACCOUNT_EVENTS_KEPT
  call('XADD', key, 'MINID', '~', format('%d', max(oldest, 0)), id, field, events)
  -- The key lives for 25 to 26 hours after its last entry; that is written once an hour.
  if call('TTL', key) < 90000 then call('EXPIRE', key, ACCOUNT_EVENTS_KEY_KEPT) end
end

-- Removes the last entries of a list, the oldest, until the others have no more bytes than most.
local function trim_log(key, most)
  local bytes = 0
  for i, entry in ipairs(call('LRANGE', key, 0, -1)) do
    bytes = bytes + #entry
    if bytes > most and i == 1 then return call('DEL', key) end
    if bytes > most then return call('LTRIM', key, 0, i - 2) end
  end
end

-- Removes events from an endpoint's schedule. words are, from first to last, an event and what its owner
-- knows of replays that asked for it, in turns. An event of which something else is stored stays:
-- somebody has asked for it while it was being sent, and it is to be sent again.
local function unschedule(schedule, attempts, replayed, words, first, last)
  for i = first, last, 2 do
    local event = words[i]
    local stored = string.match(call('HGET', attempts, event) or '', '^%d*(.*)$')
    if stored == words[i + 1] then
      call('ZREM', schedule, event)
      call('HDEL', attempts, event)
      call('SREM', replayed, event)
    end
  end
end

-- Notes that a test event was accepted that was signed with the endpoint's newest secret as of a version.
-- A later version may have another secret, of which that says nothing.
local function prove(endpoint, version)
  if call('HGET', endpoint, 'version') ~= version then return end
  call('HSET', endpoint, 'proven', '1')
  call('HINCRBY', endpoint, 'version', 1)
end

local function fill_in_names()
  call, pack, parse = redis.call, struct.pack, struct.unpack
  byte, char, find, format, sub = string.byte, string.char, string.find, string.format, string.sub
  ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
end
