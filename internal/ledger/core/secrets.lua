-- The secret of an account or of a webhook endpoint is in the field secret. The secrets
-- that it replaced, each of which works until its own time, are in the field earlier, one
-- behind the other: until (6 bytes, ms), length (2), secret. The first is the one that was
-- replaced last; of an endpoint whose newest secret is not proven, the one that the spec's
-- header is keyed with.
local MOST_EARLIER = 4

-- Returns the earlier secrets that work at now (ms): pairs of until and secret.
local function earlier_secrets(now, earlier)
  local all, at = {}, 1
  while earlier and at <= #earlier do
    local ends, secret
    ends, secret, at = parse('>I6I2c0', earlier, at)
    if now < ends then all[#all + 1] = {ends, secret} end
  end

  return all
end

-- Makes fresh the secret. The one before works until ends, or ends now with all
-- earlier ones (revoke). Returns written, again (fresh was issued before: nothing is
-- changed) or full (so many earlier ones still work).
local function rotate_secret(key, now, fresh, ends, revoke)
  local known = call('HMGET', key, 'secret', 'earlier', 'proven')
  local current, proven = known[1], known[3]
  local all = earlier_secrets(now, known[2])

  if current == fresh then return 'again' end
  for _, one in ipairs(all) do
    if one[2] == fresh then return 'again' end
  end

  if revoke then
    call('HSET', key, 'secret', fresh)
    call('HDEL', key, 'earlier')
    return 'written'
  end

  if #all >= MOST_EARLIER then return 'full' end
  local place = 1
  if proven == '0' then place = #all + 1 end
  table.insert(all, place, {ends, current})

  local earlier = ''
  for _, one in ipairs(all) do earlier = earlier .. pack('>I6I2c0', one[1], #one[2], one[2]) end
  call('HSET', key, 'secret', fresh, 'earlier', earlier)
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
