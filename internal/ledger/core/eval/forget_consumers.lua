#!lua flags=allow-oom
-- Deletes consumers of a group that are gone: silent for a while, and without a
-- single entry that is theirs to settle, because deleting a consumer drops those.
-- A live one that had nothing to read for as long is no loss either: its next
-- entry makes it again.
-- KEYS 1 stream
-- ARGV 1 consumer group, 2 how long silent in ms, 3 the only one to look at, or
--   '' for all
-- Replies: how many were deleted
-- Repeated call: finds nothing left to do.
local listed, deleted = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1]), 0
if listed.err then return 0 end -- no such stream or group: nobody to forget
for _, fields in ipairs(listed) do
  local about = {}
  for i = 1, #fields, 2 do about[fields[i]] = fields[i + 1] end
  local named = ARGV[3] == '' or ARGV[3] == about.name
  if named and about.pending == 0 and about.idle >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about.name)
    deleted = deleted + 1
  end
end
return deleted
