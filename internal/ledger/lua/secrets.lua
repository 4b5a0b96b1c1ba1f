-- The secret of an account or of a webhook endpoint, and the earlier ones, each of
-- which works until its own time. The first earlier one stands in old_secret and
-- old_until (ms), which is all that the release before this one reads and writes;
-- the others in previous, one behind the other: until (6 bytes), length (2), secret.
-- The first is the one that was replaced last; of an endpoint whose newest secret is
-- not proven, the one that the spec's header is keyed with.
local MOST_EARLIER = 4

-- The earlier secrets that work at now (ms): pairs of until and secret.
local function earlier_secrets(now, old_secret, old_until, previous)
  local all, at = {}, 1
  old_until = tonumber(old_until or 0)
  if now < old_until then all[1] = {old_until, old_secret} end
  while previous and at <= #previous do
    local ends, secret
    ends, secret, at = parse('>I6I2c0', previous, at)
    if now < ends then all[#all + 1] = {ends, secret} end
  end
  return all
end

-- Makes fresh the secret. The one before works until ends, or ends now with all
-- earlier ones (revoke). Returns written, again (fresh was issued before: nothing is
-- changed) or full (so many earlier ones still work).
local function rotate_secret(key, now, fresh, ends, revoke)
  local known = call('HMGET', key, 'secret', 'old_secret', 'old_until', 'previous', 'proven')
  local all, previous = earlier_secrets(now, known[2], known[3], known[4]), ''
  if known[1] == fresh then return 'again' end
  for _, one in ipairs(all) do
    if one[2] == fresh then return 'again' end
  end
  if revoke then
    all = {}
  elseif #all >= MOST_EARLIER then
    return 'full'
  else
    table.insert(all, known[5] == '0' and #all + 1 or 1, {ends, known[1]})
  end
  call('HSET', key, 'secret', fresh)
  if not all[1] then
    call('HDEL', key, 'old_secret', 'old_until', 'previous')
    return 'written'
  end
  for i = 2, #all do previous = previous .. pack('>I6I2c0', all[i][1], #all[i][2], all[i][2]) end
  call('HSET', key, 'old_secret', all[1][2], 'old_until', format('%.0f', all[1][1]), 'previous', previous)
  return 'written'
end

-- From when on tokens are good that are issued after a revocation at now, in Unix seconds. Tokens
-- have whole seconds, and gateways issue them by clocks that may be half a second ahead
-- (clockTolerance), so those of the second that is in half a second may have been issued before.
local function good_from(now) return floor(now + 0.5) + 1 end

-- Notes from when on (Unix seconds) the tokens of an account or a fleet are good, and
-- raises the version that every gateway polls. A token lives for an hour, so what is
-- older than two has nothing left to refuse.
local function revoke_tokens(revoked, meta, subject, not_before, now)
  for _, one in ipairs(call('ZRANGEBYSCORE', revoked, '-inf', now - 7200)) do call('ZREM', revoked, one) end
  call('ZADD', revoked, 'GT', not_before, subject)
  call('HINCRBY', meta, 'fleets', 1)
end
