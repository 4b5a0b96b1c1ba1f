-- Fills Redis with what is past its time, spread over the partitions.
-- ARGV 1 how many copies of ended orders, listed as having ended ten days ago, 2 how many entries
--   of half a kilobyte, as many in streams that the exporter has read as in the stream of an account,
--   there of thirty hours ago, 3 that account (16 bytes), 4 a number that makes the copies' digests
--   unlike those of other calls, 5 '1': the account's stream is emptied first
-- Reply: the prefixes {tag} of the partitions

local orders, entries, account = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local now, text, prefixes = tonumber(redis.call('TIME')[1]), string.rep('x', 500), {}
local hour, at = string.format('%d', now / 3600 - 240), string.format('%d', now * 1000 - 30 * 3600000)

-- An ended order's record and day of each partition that has one.
local examples = {}
for _, key in ipairs(redis.call('KEYS', '*}R*')) do
  local prefix = string.match(key, '^({[^}]+})R%d+$') -- orders' keys end in any bytes
  local member = prefix and redis.call('LINDEX', key, 0)
  local record = member and redis.call('GET', prefix .. 'o' .. string.sub(member, 1, 12))
  if record then examples[#examples + 1] = { prefix, record, string.sub(member, 13, 14) } end
end
for n = 1, #examples > 0 and orders or 0 do
  local prefix, record, day = unpack(examples[n % #examples + 1])
  local hash = redis.sha1hex(ARGV[4] .. ' ' .. n)
  local function word(from) return tonumber(string.sub(hash, from, from + 7), 16) end
  local digest = struct.pack('>I4I4I4', word(1), word(9), word(17))
  redis.call('SET', prefix .. 'o' .. digest, record)
  redis.call('RPUSH', prefix .. 'R' .. hour, digest .. day)
  redis.call('ZADD', prefix .. 'H', hour, hour)
end

for _, key in ipairs(owners()) do
  local prefix = string.sub(key, 1, -2)
  prefixes[#prefixes + 1] = prefix
  if redis.call('SISMEMBER', prefix .. 'A', account) == 1 then
    if ARGV[5] == '1' then redis.call('DEL', prefix .. 'E' .. account) end
    for n = 1, entries do redis.call('XADD', prefix .. 'E' .. account, at .. '-*', 'm', text) end
  end
end
for n = 1, entries do redis.call('XADD', prefixes[n % #prefixes + 1] .. 'V', '*', 'o', text) end
-- Nobody exports here; what a group has yet to read would stay.
for _, prefix in ipairs(prefixes) do
  for _, kind in ipairs({ 'e', 'v', 'V', 'U' }) do
    redis.pcall('XGROUP', 'CREATE', prefix .. kind, 'export', '$', 'MKSTREAM')
    redis.call('XGROUP', 'SETID', prefix .. kind, 'export', '$')
  end
end
return prefixes
