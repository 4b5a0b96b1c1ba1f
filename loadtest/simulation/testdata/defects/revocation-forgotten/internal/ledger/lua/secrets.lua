-- Revocations are forgotten after twelve minutes, while tokens live for an hour.
local function revoke_tokens(revoked, meta, subject, not_before, now)
  for _, one in ipairs(call('ZRANGEBYSCORE', revoked, '-inf', now - 720)) do call('ZREM', revoked, one) end
  call('ZADD', revoked, 'GT', not_before, subject)
  call('HINCRBY', meta, 'fleets', 1)
end
