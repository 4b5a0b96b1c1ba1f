-- Exact sliding windows (decisions, "Limits and idempotency").
--
-- The sliding windows of an endpoint are two strings. The first is a head of 60 bytes and behind it, newest
-- first, the admissions since the last multiple of 16, 7 bytes each, in
-- microseconds; it is written as a whole with every admission. The second, the
-- log (its key has an l more), takes them 16 at a time: the admission with index
-- i is at slot capacity - 1 - i mod capacity.
--
--   0  flags      1   1: account suspended, 2: the first window is a bucket
--   1  count 1    4   at most count in any
--   5  seconds 1  4   seconds; count 0: no such window
--   9  count 2    4
--   13 seconds 2  4
--   17 capacity   4   slots of the log, a power of two; doubles while it is there
--   21 admitted   6   admissions ever; the next admission's index
--   27 tail 1     6   oldest index inside window 1
--   33 tail 2     6
--   39 last       7   time of the last admission; of a bucket, that of a later
--                     change of its limits, up to which its debt is then settled
--   46 at 1       7   time at tail 1; of a bucket: its debt at last, in units of
--                     1/count 1 microseconds: a request adds seconds 1 x 10^6,
--                     every microsecond takes count 1 off, all without rounding
--   53 at 2       7   time at tail 2
--
-- The first 17 bytes are the account's limits, written by write_account and
-- nowhere else: an account without this string does not exist. It stays.
--
-- The log is for windows that are yet to come, too: limits may be changed, and
-- count what was admitted before. So beyond what the windows hold it keeps the
-- admissions of a day, the last 16,384 of them at most, 115 kB: a window of up to so
-- many requests is exact from the moment on in which it comes into force, a larger
-- one that is longer than those before counts these at first. A day after the last
-- of them it expires.
--
-- Nothing is written for a request that is refused, with one exception: times
-- in the future, left by a clock that went back, are drawn to the present.
--
-- Crash or repeat: a script is all or nothing; a repeated call whose first
-- reply was lost counts twice, which errs on the safe side.
local HEAD, ENTRY, RECENT = 60, 7, 16
local DAY, KEPT = 86400000000, 16384
local HEAD_FORMAT, CURSOR_FORMAT = '>BI4I4I4I4I4I6I6I6I7I7I7', '>I4I6I6I6I7I7I7'

-- The windows of the running call: scripts run one after the other, and open_windows
-- sets all of it. logged is the index of the first admission that is not in the
-- log.
local windows_key, windows_value
local flags, count1, seconds1, count2, seconds2
local capacity, admitted, tail1, tail2, last, at1, at2, logged

-- The decision on the request, set by check_limits: the limit that decides, the seconds
-- of its window (0: a bucket), how many requests remain after this one (-1: it is
-- refused), and when that number grows or the refused request may be tried;
-- decided is the time it holds for, debt a bucket's after this request.
local limit, window, remaining, grows, decided, debt

-- The windows' value after record_request, for the caller to write.
local recorded

-- Makes key's value the windows of this call; false when there is no account.
local function open_windows(key, value)
  if not value then return false end
  windows_key, windows_value = key, value
  flags, count1, seconds1, count2, seconds2, capacity, admitted, tail1, tail2, last, at1, at2 =
    parse(HEAD_FORMAT, value)
  logged = admitted - (#value - HEAD) / ENTRY
  return true
end

local function log_key() return windows_key .. 'l' end

-- The time of an admission; 0, which is long ago, if the log has expired.
local function entry_at(index)
  if index >= logged then
    return (parse('>I7', windows_value, HEAD + 1 + (admitted - 1 - index) * ENTRY))
  end
  local offset = (capacity - 1 - index % capacity) * ENTRY
  -- %d is half the price of what a number costs as an argument.
  local entry = call('GETRANGE', log_key(), format('%d', offset), format('%d', offset + ENTRY - 1))
  return #entry == ENTRY and parse('>I7', entry) or 0
end

-- The first index whose admission is newer than the horizon, and its time.
-- Gallops, so an idle hour costs a handful of reads and a steady stream one.
local function advance(tail, at, horizon)
  if tail >= admitted or at > horizon then return tail, at end
  local newest = flags < 2 and last or entry_at(admitted - 1)
  if newest <= horizon then return admitted, 0 end
  local low, step = tail, 1
  local high, high_at = admitted - 1, newest
  while low + step < high do
    local t = entry_at(low + step)
    if t > horizon then high, high_at = low + step, t break end
    low, step = low + step, step * 2
  end
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    local t = entry_at(middle)
    if t > horizon then high, high_at = middle, t else low = middle end
  end
  return high, high_at
end

-- The first of the log's admissions above the horizon, or one of the 15 before it:
-- rows of 16 are looked at, as they were written, back from the newest one in steps
-- that double, then by halving. Times never fall from one index to the next.
local function first_since(horizon)
  local within, beyond, step = 0, min(capacity, logged) / RECENT + 1, 1
  while beyond - within > 1 do
    local row = min(within + step, floor((within + beyond) / 2))
    if entry_at(logged - (row - 1) * RECENT - 1) > horizon then
      within, step = row, step * 2
    else
      beyond = row
    end
  end
  return logged - within * RECENT
end

-- Puts both tails back to where the longer window begins at now, for limits or a
-- clock that are not what the tails went by; the next request advances them.
local function find_tails(now)
  local first = first_since(now - max(seconds1, seconds2) * 1000000)
  tail1, tail2, at2 = first, first, first < admitted and entry_at(first) or 0
  if flags < 2 then at1 = at2 end
end

-- The log's part of clamp_future. Those in the future lie in a row or two of slots, each
-- written at once.
local function clamp_log(now)
  local low = first_since(now)
  while low < logged and entry_at(low) <= now do low = low + 1 end
  while low < logged do
    local last_of_row = min(logged, low - low % capacity + capacity) - 1
    call('SETRANGE', log_key(), (capacity - 1 - last_of_row % capacity) * ENTRY, string.rep(pack('>I7', now), last_of_row - low + 1))
    low = last_of_row + 1
  end
end

-- A clock more than a second behind the last admission has jumped forward and
-- back: those future times are drawn to now, otherwise they would lock the
-- account out for as long as the jump was. A smaller step back is waited out.
local function clamp_future(now)
  local recent = ''
  for index = logged, admitted - 1 do recent = pack('>I7', min(now, entry_at(index))) .. recent end
  clamp_log(now)
  last, windows_value = now, sub(windows_value, 1, HEAD) .. recent
  find_tails(now)
  windows_value = sub(windows_value, 1, 17) .. pack(CURSOR_FORMAT, capacity, admitted, tail1, tail2, last, at1, at2) .. recent
  call('SET', windows_key, windows_value)
end

-- One window after this request, were it admitted: remaining and grows.
local function check_window(count, span, tail, at)
  local inside = admitted - tail
  if inside >= count then return -1, entry_at(admitted - count) + span end
  return count - inside - 1, (inside == 0 and decided or at) + span
end

local function check_bucket()
  local cost = seconds1 * 1000000
  local depth = count2 * cost
  debt = max(0, at1 - (decided - last) * count1) + cost
  if debt > depth then return -1, decided + ceil((debt - depth) / count1) end
  local spare = depth - debt
  return (spare - spare % cost) / cost, decided + ceil((cost - spare % cost) / count1)
end

-- Checks a request at now without consuming anything; false when it is refused.
-- The decision is that of the window that the headers show: of two refusals the longer
-- wait, of two admissions the fewer remaining.
local function check_limits(now)
  if last > now then
    if last - now > 1000000 then clamp_future(now) else now = last end
  end
  decided, limit = now, nil
  if flags >= 2 then
    limit, window, remaining, grows = count2, 0, check_bucket()
  elseif count1 > 0 then
    local span = seconds1 * 1000000
    tail1, at1 = advance(tail1, at1, now - span)
    limit, window, remaining, grows = count1, seconds1, check_window(count1, span, tail1, at1)
  end
  if count2 > 0 then
    local span = seconds2 * 1000000
    tail2, at2 = advance(tail2, at2, now - span)
    local remaining2, grows2 = check_window(count2, span, tail2, at2)
    if not limit or remaining2 < remaining or remaining2 == remaining and grows2 > grows then
      limit, window, remaining, grows = count2, seconds2, remaining2, grows2
    end
  end
  return remaining >= 0
end

-- Doubles the log. The entries of the present lap through the slots, at its end,
-- keep their order, as do those of the lap before in front of them; in the
-- doubled log the odd lap comes first, and what is in neither is long ago. SET,
-- not SETRANGE: growing in place would reserve twice the memory.
local function grow()
  local entries = call('GET', log_key()) or ''
  entries = entries .. string.rep('\0', capacity * ENTRY - #entries)
  local present = logged % capacity * ENTRY
  local before = sub(entries, 1, #entries - present) .. string.rep('\0', present)
  local lap = string.rep('\0', #entries - present) .. sub(entries, #entries - present + 1)
  local odd = logged / capacity % 2 >= 1
  capacity = capacity * 2
  call('SET', log_key(), odd and lap .. before or before .. lap)
end

-- Moves the 16 recent admissions to the log, over the 16 oldest in it, which are
-- outside the windows and more than a day old or more than are kept. Without the
-- log there is none of the last day in it.
local function keep(recent)
  if call('EXISTS', log_key()) == 0 then capacity = RECENT end
  local oldest = min(tail1, tail2)
  while admitted - oldest > capacity or capacity < KEPT and entry_at(logged - capacity + RECENT - 1) > decided - DAY do grow() end
  call('SETRANGE', log_key(), (capacity - RECENT - logged % capacity) * ENTRY, recent)
  call('PEXPIRE', log_key(), format('%d', DAY / 1000 + 60000))
end

-- Records the request that check_limits has just let pass.
local function record_request()
  if flags >= 2 then
    at1 = debt
  elseif tail1 == admitted then
    at1 = decided
  end
  if tail2 == admitted then at2 = decided end
  admitted, last = admitted + 1, decided
  -- A window that is not there counts nothing, this admission included.
  if flags >= 2 or count1 == 0 then tail1 = admitted end
  if count2 == 0 then tail2 = admitted end
  local limits = sub(windows_value, 1, 17)
  if admitted - logged < RECENT then
    recorded = limits .. pack('>I4I6I6I6I7I7I7I7', capacity, admitted, tail1, tail2, last, at1, at2, decided) ..
      sub(windows_value, HEAD + 1)
  else
    keep(pack('>I7', decided) .. sub(windows_value, HEAD + 1))
    recorded = limits .. pack(CURSOR_FORMAT, capacity, admitted, tail1, tail2, last, at1, at2)
  end
end

local function suspended() return flags % 2 == 1 end

-- What every counted reply begins with: its name, a line feed, and the quota as
-- limit, remaining (4 bytes each), the Unix second at which remaining grows
-- (6 bytes), the wait in milliseconds (4 bytes, 0 unless refused), the seconds
-- until remaining grows and those of the window (4 bytes each).
local function reply(name, payload)
  local wait, left = 0, remaining
  if left < 0 then wait, left = max(1, ceil((grows - decided) / 1000)), 0 end
  return name .. '\n' .. pack('>I4I4I6I4I4I4', limit, left, ceil(grows / 1000000), wait,
    max(0, ceil((grows - decided) / 1000000)), window) .. (payload or '')
end

-- Writes the admission, and answers.
local function reply_counted(name, payload)
  call('SET', windows_key, recorded)
  return reply(name, payload)
end

-- Checks and records in one go, for requests that nothing but the account's
-- limits can refuse. Returns the reply to give at once, or nil.
local function count_request(key, now)
  if not open_windows(key, call('GET', key)) then return 'unknown' end
  if not check_limits(now) then return reply('limited') end
  record_request()
  call('SET', windows_key, recorded)
  if suspended() then return reply('suspended') end
end
