-- Changes a webhook endpoint's configuration, and notes that for the partition's owner.
-- A change of the URL clears what was known of the old receiver; the backlog goes to the
-- new one, slowly first.
-- KEYS 1 endpoint, 2 notes, 3 list of receivers
-- ARGV 1 key prefix {tag}, 2 account, 3 'set', 'rotate', 'limit', 'probe' or 'delete',
--   4 set: the URL, rotate: '1' ends the earlier secrets now, 5 set (used only
--   when there is none yet), rotate: sealed secret, 6 for how long the one before
--   still signs, in ms; limit: 4 most in flight, 5 events a second ('0': none of
--   its own, '': as it is)
-- Replies: written, issued (set: the given secret was taken), missing (all but
--   set: no URL is registered), waiting (set: what waited for a URL that was
--   deleted must be recorded first; nothing was written), full (rotate: too many
--   earlier secrets still sign)
-- The list of receivers (listings.go) has those with a URL. The score of a healthy one
-- is its severity, 3 for the best, before the time of its state.
-- Repeated call: set and limit write the same again; set of the same URL and probe ask for a
--   probe once more; rotate is recognized by the sealed secret's bytes.
-- Requests for a probe are counted, and the owner writes which of them it has answered (step.go). So
-- one that comes while the owner answers an earlier one stays open.
local now = floor(clock() / 1000)
local known = call('HMGET', KEYS[1], 'url', 'secret')
local url, secret = known[1], known[2]
-- Returns the version that the endpoint has from now on.
local function raise()
  local version = call('HINCRBY', KEYS[1], 'version', 1)
  call('HSET', KEYS[1], 'state', 'healthy', 'since', now, 'moved', version)
  call('HDEL', KEYS[1], 'gate')
  return version
end
local HEALTHY = 3 * 4398046511104 -- 2^42, for the time
local function limit(field, value)
  if value == '' then return end
  if value == '0' then call('HDEL', KEYS[1], field) else call('HSET', KEYS[1], field, value) end
end
if ARGV[3] == 'set' then
  if not url and call('EXISTS', ARGV[1] .. 'd' .. ARGV[2]) == 1 then return 'waiting' end
  if url ~= ARGV[4] then
    call('HSET', KEYS[1], 'url', ARGV[4])
    raise()
    call('ZADD', KEYS[3], HEALTHY + now, ARGV[2])
  else
    -- Who sets the URL that is set, or asks for a test, says that the receiver is
    -- repaired: the next probe goes out now, whatever its pause had grown to.
    call('HINCRBY', KEYS[1], 'probe', 1)
  end
  note(KEYS[2], ARGV[2])
  if secret then
    if secret == ARGV[5] then return 'issued' end
    return 'written'
  end
  call('HSET', KEYS[1], 'secret', ARGV[5], 'proven', '1')
  return 'issued'
end
if not url then return 'missing' end
if ARGV[3] == 'probe' then
  call('HINCRBY', KEYS[1], 'probe', 1)
elseif ARGV[3] == 'rotate' then
  local done = rotate_secret(KEYS[1], now, ARGV[5], now + tonumber(ARGV[6]), ARGV[4] == '1')
  if done == 'full' then return done end
  if done == 'written' then
    call('HSET', KEYS[1], 'proven', '0')
    call('HINCRBY', KEYS[1], 'version', 1)
  end
elseif ARGV[3] == 'limit' then
  limit('in_flight', ARGV[4])
  limit('pace', ARGV[5])
else
  call('HDEL', KEYS[1], 'url', 'secret', 'earlier', 'proven') -- the limits are the operator's
  -- The owner may read only after another URL was set. By this it sees that what it has in memory was for
  -- a URL that was deleted.
  call('HSET', KEYS[1], 'deleted', raise())
  call('ZREM', KEYS[3], ARGV[2])
end
note(KEYS[2], ARGV[2])
return 'written'
