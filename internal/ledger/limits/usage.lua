-- Reads how much of an account's limits is used, as its next request would be
-- checked: counts nothing and writes nothing.
-- KEYS 1... windows of one account
-- Replies: empty (one of the windows is not there: no such account); for each
--   flags (1 byte), count 1, seconds 1, used 1, count 2, seconds 2, used 2
--   (4 bytes each), the limits as they stand in the windows. used is how many
--   admissions the window holds; of a bucket, how many of its count 2 requests
--   do not pass now. It may be above a limit that was lowered.
-- Repeated call: answers what is then.
local now = clock()

-- The time that check_limits would decide by: a small step back of the clock is waited
-- out. After a larger one it draws the future to the present, where everything
-- counts just as it does here, and so does again what had left the windows.
local function present()
  if last > now and last - now <= 1000000 then return last end
  return now
end

local function inside(seconds, tail, at)
  return admitted - advance(tail, at, present() - seconds * 1000000)
end

-- The same arithmetic as check_bucket's, so that the two never differ by one.
local function owed()
  local cost = seconds1 * 1000000
  local spare = count2 * cost - max(0, at1 - max(0, now - last) * count1)
  return count2 - (spare - spare % cost) / cost
end

local found, used = call('MGET', unpack(KEYS)), ''
for i, key in ipairs(KEYS) do
  if not open_windows(key, found[i]) then return '' end
  if last - now > 1000000 then find_tails(now) end
  local used1, used2 = 0, 0
  if flags >= 2 then
    used1 = owed()
  elseif count1 > 0 then
    used1 = inside(seconds1, tail1, at1)
  end
  if count2 > 0 then used2 = inside(seconds2, tail2, at2) end
  used = used .. pack('>BI4I4I4I4I4I4', flags, count1, seconds1, used1, count2, seconds2, used2)
end
return used
