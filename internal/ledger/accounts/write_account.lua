-- Creates or changes an account, and carries changed limits and suspension into
-- its windows, so that every script sees them at once and no window is reset.
-- KEYS 1 account, 2 accounts, 3 suspended accounts, 4 notes of the partition's owner, who
--   is notified of other muted events, then the endpoints' windows
-- ARGV 1 'create' or 'update', 2 account (16 bytes), 3 expected revision of an
--   update ('': any), 4 number of windows, then for each of them its 17 bytes of
--   limits ('' keeps them), then pairs: field, value
-- Replies: written, exists (create), missing (update), conflict (the revision is
--   another)
-- Repeated call: a create answers exists, which its caller, who chose the id,
--   takes for written; an update answers conflict, and its caller applies its
--   change once more to what it finds.
local now = clock()

-- Gives the windows of this call other limits. What was admitted counts in them, as
-- far back as they reach. Of a bucket as many requests stay owed as the rate so far
-- has left.
local function count_by(limits)
  local before = seconds1
  if flags >= 2 then
    at1 = max(0, at1 - max(0, now - last) * count1)
    last = max(last, now)
  end
  flags, count1, seconds1, count2, seconds2 = parse('>BI4I4I4I4', limits)
  if flags >= 2 then at1 = ceil(at1 * seconds1 / before) end
  find_tails(now)
end

local function is_bucket(limits) return byte(limits, 1) >= 2 end

local function write_limits(key, limits)
  local value = call('GET', key)
  -- A bucket has no first window and a window no debt: what changes its kind,
  -- which no operator can do, starts over.
  if not open_windows(key, value) or is_bucket(value) ~= is_bucket(limits) then
    call('SET', key, limits .. pack(CURSOR_FORMAT, RECENT, 0, 0, 0, 0, 0, 0))
    call('DEL', key .. 'l')
    return
  end
  if sub(value, 2, 17) ~= sub(limits, 2) then count_by(limits) end
  call('SET', key, limits .. pack(CURSOR_FORMAT, capacity, admitted, tail1, tail2, last, at1, at2) .. sub(value, HEAD + 1))
  call('PEXPIRE', key .. 'l', DAY / 1000 + 60000)
end

local exists = call('EXISTS', KEYS[1]) == 1
if ARGV[1] == 'create' and exists then return 'exists' end
if ARGV[1] == 'update' and not exists then return 'missing' end
if ARGV[3] ~= '' and call('HGET', KEYS[1], 'revision') ~= ARGV[3] then return 'conflict' end
local rings = tonumber(ARGV[4])
for i = 1, rings do
  if ARGV[4 + i] ~= '' then write_limits(KEYS[4 + i], ARGV[4 + i]) end
end
for i = 5 + rings, #ARGV, 2 do
  if ARGV[i] == 'muted' and exists and call('HGET', KEYS[1], 'muted') ~= ARGV[i + 1] then note(KEYS[4], ARGV[2]) end
  call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  if ARGV[i] == 'suspended' then
    if ARGV[i + 1] == '1' then
      call('ZADD', KEYS[3], 'NX', floor(now / 1000), ARGV[2])
    else
      call('ZREM', KEYS[3], ARGV[2])
    end
  end
end
call('HINCRBY', KEYS[1], 'revision', 1)
call('SADD', KEYS[2], ARGV[2])
return 'written'
