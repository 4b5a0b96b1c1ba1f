-- Creates or changes an account, and carries changed limits and suspension into
-- its rings, so that every script sees them at once and no window is reset.
-- KEYS 1 account, 2 accounts, then the endpoints' rings
-- ARGV 1 'create' or 'update', 2 account (16 bytes), 3 expected revision of an
--   update ('': any), 4 number of rings, then for each of them its 17 bytes of
--   limits ('' keeps them), then pairs: field, value
-- Replies: written, exists (create), missing (update), conflict (the revision is
--   another)
-- Repeated call: a create answers exists, which its caller, who chose the id,
--   takes for written; an update answers conflict, and its caller applies its
--   change once more to what it finds.
local function is_bucket(limits) return byte(limits, 1) >= 2 end

local function write_limits(key, limits)
  local before = call('GET', key)
  -- A bucket keeps no log in its first window and a window no level: what
  -- changes its kind starts over.
  if not before or is_bucket(before) ~= is_bucket(limits) then
    call('SET', key, limits .. pack(CURSOR_FORMAT, RECENT, 0, 0, 0, 0, 0, 0))
    call('DEL', key .. 'l')
    return
  end
  call('SETRANGE', key, 0, limits)
  local _, _, seconds1, _, seconds2 = parse('>BI4I4I4I4', limits)
  call('PEXPIRE', key .. 'l', max(seconds1, seconds2) * 1000 + 60000)
  local was = parse('>I4', before, 6)
  if is_bucket(limits) and was ~= seconds1 then
    -- A bucket's debt counts in its seconds; as many requests stay owed.
    local debt = parse('>I7', before, 47)
    call('SETRANGE', key, 46, pack('>I7', ceil(debt * seconds1 / was)))
  end
end

local exists = call('EXISTS', KEYS[1]) == 1
if ARGV[1] == 'create' and exists then return 'exists' end
if ARGV[1] == 'update' and not exists then return 'missing' end
if ARGV[3] ~= '' and call('HGET', KEYS[1], 'revision') ~= ARGV[3] then return 'conflict' end
local rings = tonumber(ARGV[4])
for i = 1, rings do
  if ARGV[4 + i] ~= '' then write_limits(KEYS[2 + i], ARGV[4 + i]) end
end
for i = 5 + rings, #ARGV, 2 do call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
call('HINCRBY', KEYS[1], 'revision', 1)
call('SADD', KEYS[2], ARGV[2])
return 'written'
