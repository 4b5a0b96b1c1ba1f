-- Changes a webhook endpoint's configuration. A change of the URL clears what
-- was known of the old receiver; the backlog goes to the new one, slowly first.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 'set', 'rotate', 'limit', 'probe' or 'delete',
--   4 set: the URL, rotate: '1' ends the earlier secrets now, 5 set (used only
--   when there is none yet), rotate: sealed secret, 6 end of the validity of the
--   one before in ms; limit: 4 most in flight, 5 events a second ('0': none of
--   its own, '': as it is)
-- Replies: written, issued (set: the given secret was taken), missing (all but
--   set: no URL is registered), waiting (set: what was queued for a URL that was
--   deleted must be settled first; nothing was written), full (rotate: too many
--   earlier secrets still sign)
-- Repeated call: set, limit and probe write the same again; rotate is recognized by
--   the sealed secret's bytes.
local e = open_queue(ARGV[1], ARGV[2], clock())
local secret = call('HGET', e.w, 'secret')
local function raise()
  call('HSET', e.w, 'state', 'healthy', 'since', e.now, 'moved', call('HINCRBY', e.w, 'version', 1))
  e.gate = nil
  call('HDEL', e.w, 'gate')
end
local function limit(field, value)
  if value == '' then return end
  if value == '0' then call('HDEL', e.w, field) else call('HSET', e.w, field, value) end
end
-- Who sets the URL that is set, or asks for a test, says that the receiver is
-- mended: the next probe goes out now, whatever its pause had grown to.
local function probe_now()
  local g = e.gate
  if not g or g.open == 0 then return end
  g.hold, g.changed = min(g.hold, e.now), true
  keep_gate(e)
  look_at(e, e.now)
end
if ARGV[3] == 'set' then
  if not e.url and call('LLEN', e.q) + call('ZCARD', e.d) + call('ZCARD', e.k) > 0 then return 'waiting' end
  if e.url ~= ARGV[4] then
    call('HSET', e.w, 'url', ARGV[4])
    raise()
    if call('LLEN', e.q) + call('ZCARD', e.d) > 0 then
      e.gate = new_gate()
      start_slowly(e, e.gate)
      keep_gate(e)
      look_at(e, e.now)
    end
  else
    probe_now()
  end
  if secret then
    if secret == ARGV[5] then return 'issued' end
    return 'written'
  end
  call('HDEL', e.w, 'previous') -- a release that knows nothing of it may have deleted the others
  call('HSET', e.w, 'secret', ARGV[5], 'proven', '1')
  return 'issued'
end
if not e.url then return 'missing' end
if ARGV[3] == 'probe' then
  probe_now()
  return 'written'
end
if ARGV[3] == 'rotate' then
  local done = rotate_secret(e.w, e.now, ARGV[5], tonumber(ARGV[6]), ARGV[4] == '1')
  if done == 'full' then return done end
  if done == 'written' then
    call('HSET', e.w, 'proven', '0')
    call('HINCRBY', e.w, 'version', 1)
  end
  return 'written'
end
if ARGV[3] == 'limit' then
  limit('in_flight', ARGV[4])
  limit('pace', ARGV[5])
  look_at(e, e.now)
  return 'written'
end
call('HDEL', e.w, 'url', 'secret', 'old_secret', 'old_until', 'previous', 'proven') -- the limits are the operator's
raise()
-- What still waits is recorded as not sent by who deletes, and if that one dies by
-- the workers.
look_at(e, e.now)
return 'written'
