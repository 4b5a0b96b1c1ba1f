-- What is kept of an endpoint's attempts: the log g (list, newest first), the
-- figures in the field tally of its hash, the partition's stream v of final
-- outcomes, and until it has been exported its stream V of the others
-- (webhook_attempts.go has the formats).

-- Figures: the hour they are of, attempts that succeeded and failed in it and in
-- the hour before, bytes of the log, events delivered, retried, undelivered and
-- not sent.
local TALLY = '>I4I4I4I4I4I4I8I8I8I8'
local HOUR = 3600000
local LOG_LINES, LOG_BYTES, LOG_SLACK = 200, 262144, 16
local PROBE = 5 -- first byte of a failed probe's line; its count follows

local function tally(e)
  local t = e.figures
  if t then return t end
  if e.tally then t = {parse(TALLY, e.tally)} else t = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0} end
  local hour = floor(e.now / HOUR)
  if t[1] ~= hour then
    if t[1] == hour - 1 then t[4], t[5] = t[2], t[3] else t[4], t[5] = 0, 0 end
    t[1], t[2], t[3] = hour, 0, 0
  end
  e.figures = t
  return t
end

local function keep_tally(e)
  local t = e.figures
  if t then call('HSET', e.w, 'tally', pack(TALLY, t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10])) end
end

-- Consecutive failed probes share one line, so that an endpoint that is unavailable for
-- a day keeps the log of what went before. Returns by how many bytes the line has
-- grown; nil: it is none of them.
local function repeated_probe(g, line)
  if byte(line, 1) ~= PROBE then return end
  local last = call('LINDEX', g, 0)
  if not last or byte(last, 1) ~= PROBE then return end
  line = char(PROBE) .. pack('>I4', parse('>I4', last, 2) + 1) .. sub(line, 6)
  call('LSET', g, 0, line)
  return #line - #last
end

-- Keeps the newest 200 lines, dropping 16 at once, and at most 256 kB.
local function log_attempts(e, lines)
  local g, t, grown = e.prefix .. 'g' .. e.account, tally(e), nil
  if #lines == 1 then grown = repeated_probe(g, lines[1]) end
  if grown then
    t[6] = t[6] + grown
  else
    for _, line in ipairs(lines) do t[6] = t[6] + #line end
    local length = call('LPUSH', g, unpack(lines))
    if length >= LOG_LINES + LOG_SLACK then
      for _, line in ipairs(call('RPOP', g, length - LOG_LINES)) do t[6] = t[6] - #line end
    end
  end
  while t[6] > LOG_BYTES do
    local line = call('RPOP', g)
    if not line then break end
    t[6] = t[6] - #line
  end
end

-- Lines of one account go out as one entry: the account, and lines named 1, 2, ...
local function named(lines)
  local fields = {}
  for i, line in ipairs(lines) do fields[2 * i - 1], fields[2 * i] = i, line end
  return unpack(fields)
end

local function publish_outcomes(e, lines)
  call('XADD', e.prefix .. 'v', '*', 'a', e.account, named(lines))
end

-- Attempts that failed and go on. The exporter makes their stream when it first
-- runs: where there is none nobody would ever take them, and they would cost more
-- memory than the events that wait.
local function publish_tries(e, lines)
  call('XADD', e.prefix .. 'V', 'NOMKSTREAM', '*', 'a', e.account, named(lines))
end
