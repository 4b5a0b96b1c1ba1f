-- Renews the tokens of partitions of which the owner has nothing to write. Each token is compared
-- by itself, as in advance.lua: those that somebody has replaced stay as they are, and the others
-- are renewed all the same.
-- KEYS the owners' keys of the partitions
-- ARGV for each key the token as the owner knows it, and the token from now on
-- Replies: for each key done, repeated, or lost (another owner)
-- Repeated call: answers repeated for what it has renewed; the token tells.
local stored = call('MGET', unpack(KEYS))
local replies = {}
for i, key in ipairs(KEYS) do
  local stored_token, expected_token, next_token = stored[i] or '', ARGV[2 * i - 1], ARGV[2 * i]
  if stored_token == expected_token then
    call('SET', key, next_token)
    replies[i] = 'done'
  else
    replies[i] = stored_token == next_token and 'repeated' or 'lost'
  end
end
return replies
