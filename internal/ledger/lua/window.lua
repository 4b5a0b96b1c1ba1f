-- Exact sliding windows (design section 4).
--
-- A ring is one string: a head of 67 bytes, then 7-byte admission times in
-- microseconds, the admission with index i at slot i mod capacity.
--
--   0  flags      1   1: account suspended, 2: the first window is a bucket
--   1  count 1    4   at most count in any
--   5  seconds 1  4   seconds; count 0: no such window
--   9  count 2    4
--   13 seconds 2  4
--   17 capacity   4   slots, a power of two; grows by doubling, never shrinks
--   21 admitted   6   admissions ever; the next admission's index
--   27 tail 1     6   oldest index inside window 1
--   33 tail 2     6
--   39 last       7   time of the last admission
--   46 at 1       7   time at tail 1; of a bucket: its debt at last, in units of
--                     1/count 1 microseconds: a request adds seconds 1 x 10^6,
--                     every microsecond takes count 1 off, all without rounding
--   53 at 2       7   time at tail 2
--   60 expiry     7   when the key expires
--
-- The first 17 bytes are a copy of the account's limits (HGET account
-- 'l' .. endpoint): a change of limits writes both, so the head alone answers.
-- Nothing is written for a request that is refused, with one exception: times
-- in the future, left by a clock that went back, are drawn to the present.
--
-- Crash or repeat: a script is all or nothing; a repeated call whose first
-- reply was lost counts twice, which errs on the safe side.
local HEAD, ENTRY = 67, 7
local HEAD_FORMAT, CURSOR_FORMAT = '>BI4I4I4I4I4I6I6I6I7I7I7I7', '>I6I6I6I7I7I7I7'

local function read_ring(key, account, letter)
  local head = redis.call('GETRANGE', key, 0, HEAD - 1)
  local r = {key = key}
  if #head == HEAD then
    r.flags, r.count1, r.seconds1, r.count2, r.seconds2, r.capacity, r.admitted,
      r.tail1, r.tail2, r.last, r.at1, r.at2, r.expiry = struct.unpack(HEAD_FORMAT, head)
    return r
  end
  local limits = redis.call('HGET', account, 'l' .. letter)
  if not limits then return nil end
  r.flags, r.count1, r.seconds1, r.count2, r.seconds2 = struct.unpack('>BI4I4I4I4', limits)
  r.capacity, r.admitted, r.tail1, r.tail2, r.last, r.at1, r.at2, r.expiry = 16, 0, 0, 0, 0, 0, 0, 0
  r.fresh = limits
  return r
end

local function entry_at(r, index)
  local offset = HEAD + (index % r.capacity) * ENTRY
  return struct.unpack('>I7', redis.call('GETRANGE', r.key, offset, offset + ENTRY - 1))
end

-- The first index whose admission is newer than the horizon, and its time.
-- Gallops, so an idle hour costs a handful of reads and a steady stream one.
local function advance(r, tail, at, horizon)
  if tail >= r.admitted or at > horizon then return tail, at end
  if r.last <= horizon then return r.admitted, 0 end
  local low, step = tail, 1
  local high, high_at = r.admitted - 1, r.last
  while low + step < high do
    local t = entry_at(r, low + step)
    if t > horizon then high, high_at = low + step, t break end
    low, step = low + step, step * 2
  end
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local t = entry_at(r, middle)
    if t > horizon then high, high_at = middle, t else low = middle end
  end
  return high, high_at
end

-- A clock more than a second behind the last admission has jumped forward and
-- back: those future times are drawn to now, otherwise they would lock the
-- account out for as long as the jump was. A smaller step back is waited out.
local function clamp_future(r, now)
  for index = r.admitted - 1, math.max(0, r.admitted - r.capacity), -1 do
    if entry_at(r, index) <= now then break end
    redis.call('SETRANGE', r.key, HEAD + (index % r.capacity) * ENTRY, struct.pack('>I7', now))
  end
  r.last, r.at2 = now, math.min(r.at2, now)
  if r.flags % 4 < 2 then r.at1 = math.min(r.at1, now) end
  r.expiry = 0
  redis.call('SETRANGE', r.key, 21, struct.pack(CURSOR_FORMAT, r.admitted, r.tail1, r.tail2,
    r.last, r.at1, r.at2, r.expiry))
end

-- One window after this request, were it admitted: remaining, and the times at
-- which remaining grows and, if it is refused (remaining < 0), may be tried.
local function judge_window(r, count, seconds, tail, at, now)
  local inside = r.admitted - tail
  local span = seconds * 1000000
  if inside >= count then
    local grows = entry_at(r, r.admitted - count) + span
    return {limit = count, remaining = -1, grows = grows}
  end
  return {limit = count, remaining = count - inside - 1, grows = (inside == 0 and now or at) + span}
end

local function judge_bucket(r, now)
  local cost = r.seconds1 * 1000000
  local depth = r.count2 * cost
  local debt = math.max(0, r.at1 - (now - r.last) * r.count1) + cost
  if debt > depth then
    return {limit = r.count2, remaining = -1, grows = now + math.ceil((debt - depth) / r.count1)}
  end
  r.debt = debt
  local spare = depth - debt
  local remaining = (spare - spare % cost) / cost
  return {limit = r.count2, remaining = remaining, grows = now + math.ceil((cost - spare % cost) / r.count1)}
end

-- The verdict that the headers show: a refusal before an admission, of two
-- refusals the longer wait, of two admissions the fewer remaining.
local function tighter(a, b)
  if not a then return b end
  if not b then return a end
  if a.remaining == b.remaining then return a.grows >= b.grows and a or b end
  return a.remaining < b.remaining and a or b
end

-- Judges a request at now without consuming anything. Returns the tightest
-- verdict {limit, remaining, grows}; remaining is -1 when it is refused.
local function judge(r, now)
  if r.last > now then
    if r.last - now > 1000000 then clamp_future(r, now) else now = r.last end
  end
  r.now = now
  local first, second
  if r.flags % 4 >= 2 then
    first = judge_bucket(r, now)
  elseif r.count1 > 0 then
    r.tail1, r.at1 = advance(r, r.tail1, r.at1, now - r.seconds1 * 1000000)
    first = judge_window(r, r.count1, r.seconds1, r.tail1, r.at1, now)
  end
  if r.count2 > 0 then
    r.tail2, r.at2 = advance(r, r.tail2, r.at2, now - r.seconds2 * 1000000)
    second = judge_window(r, r.count2, r.seconds2, r.tail2, r.at2, now)
  end
  return tighter(first, second)
end

-- Doubles the ring. Every live index keeps its slot in one of the two halves,
-- so the copy of the entries behind themselves is the whole move. SET, not
-- SETRANGE: growing in place would reserve twice the memory.
local function grow(r)
  local all = redis.call('GET', r.key)
  local entries = string.sub(all, HEAD + 1)
  r.capacity = r.capacity * 2
  redis.call('SET', r.key, string.sub(all, 1, 17) .. struct.pack('>I4', r.capacity) ..
    string.sub(all, 22, HEAD) .. entries .. entries, 'KEEPTTL')
end

-- Admits the request that judge has just let pass.
local function admit(r)
  local now = r.now
  local bucket = r.flags % 4 >= 2
  if r.fresh then
    redis.call('SET', r.key, r.fresh .. struct.pack('>I4', r.capacity) ..
      string.rep('\0', HEAD - 21 + r.capacity * ENTRY))
  end
  if r.tail1 == r.admitted and not bucket then r.at1 = now end
  if r.tail2 == r.admitted then r.at2 = now end
  -- A window that is not there counts nothing, this admission included.
  if bucket then r.at1 = r.debt end
  if bucket or r.count1 == 0 then r.tail1 = r.admitted + 1 end
  if r.count2 == 0 then r.tail2 = r.admitted + 1 end
  if r.admitted - math.min(r.tail1, r.tail2) >= r.capacity then grow(r) end
  redis.call('SETRANGE', r.key, HEAD + (r.admitted % r.capacity) * ENTRY, struct.pack('>I7', now))
  r.admitted, r.last = r.admitted + 1, now
  local longest = math.max(r.seconds1, r.seconds2) * 1000000
  if bucket then longest = math.max(longest, math.ceil(r.debt / r.count1)) end
  local renew = r.expiry < now + longest
  if renew then r.expiry = now + 2 * longest + 60000000 end
  redis.call('SETRANGE', r.key, 21, struct.pack(CURSOR_FORMAT, r.admitted, r.tail1, r.tail2,
    r.last, r.at1, r.at2, r.expiry))
  if renew then redis.call('PEXPIREAT', r.key, math.ceil(r.expiry / 1000)) end
end

-- What every counted reply begins with: its name, a line feed, and the quota as
-- limit, remaining (4 bytes each), the Unix second at which remaining grows
-- (6 bytes) and the wait in milliseconds (4 bytes, 0 unless refused).
local function reply(name, verdict, now, payload)
  local wait, remaining = 0, verdict.remaining
  if remaining < 0 then
    wait, remaining = math.max(1, math.ceil((verdict.grows - now) / 1000)), 0
  end
  return name .. '\n' .. struct.pack('>I4I4I6I4', verdict.limit, remaining,
    math.ceil(verdict.grows / 1000000), wait) .. (payload or '')
end

local function suspended(r) return r.flags % 2 == 1 end

-- Judges and admits in one go, for requests that nothing but the account's
-- limits can refuse. Returns the reply to give at once, or nil and the verdict.
local function count_request(ring, account, letter, now)
  local r = read_ring(ring, account, letter)
  if not r then return 'unknown' end
  local verdict = judge(r, now)
  if verdict.remaining < 0 then return reply('limited', verdict, r.now) end
  admit(r)
  if suspended(r) then return reply('suspended', verdict, r.now) end
  return nil, verdict, r.now
end
