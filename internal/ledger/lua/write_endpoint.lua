-- Changes a webhook endpoint's configuration. A change of the URL clears what
-- was known of the old receiver; the backlog goes to the new one.
-- KEYS 1 endpoint
-- ARGV 1 key prefix {tag}, 2 account, 3 now in ms, 4 'set', 'rotate' or 'delete',
--   5 URL, 6 sealed secret: for set used only when there is none yet, 7 end of
--   the previous secret's validity in ms
-- Replies: written, issued (set: the given secret was taken), missing (rotate
--   and delete: no URL is registered)
-- Repeated call: set writes the same again; rotate would make the new secret
--   the previous one too, so it is told apart by the sealed secret's bytes.
local known = call('HMGET', KEYS[1], 'url', 'secret')
local function raise()
  call('HINCRBY', KEYS[1], 'version', 1)
  call('HSET', KEYS[1], 'state', 'healthy', 'since', ARGV[3])
end
if ARGV[4] == 'set' then
  if known[1] ~= ARGV[5] then
    call('HSET', KEYS[1], 'url', ARGV[5])
    raise()
  end
  if known[2] then
    if known[2] == ARGV[6] then return 'issued' end
    return 'written'
  end
  call('HSET', KEYS[1], 'secret', ARGV[6], 'proven', '1')
  return 'issued'
end
if not known[1] then return 'missing' end
if ARGV[4] == 'rotate' then
  if known[2] ~= ARGV[6] then
    call('HSET', KEYS[1], 'old_secret', known[2], 'old_until', ARGV[7], 'secret', ARGV[6], 'proven', '0')
    call('HINCRBY', KEYS[1], 'version', 1)
  end
  return 'written'
end
call('HDEL', KEYS[1], 'url', 'secret', 'old_secret', 'old_until', 'proven')
raise()
-- What still waits is handed out once more and recorded as not sent.
reschedule(ARGV[1], ARGV[2], tonumber(ARGV[3]))
return 'written'
