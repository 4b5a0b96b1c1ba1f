-- Lists what is due in sorted sets whose scores are times.
-- KEYS the sorted sets
-- ARGV 1 the time up to which, ms, 2 how many members of each set at most
-- Replies: for each set in which something is due: its place among KEYS, and the members, the
--   earliest first
-- Repeated call: reads again.
local due = {}
if call('EXISTS', unpack(KEYS)) == 0 then return due end -- one command for all, while nothing waits
for place, key in ipairs(KEYS) do
  local members = call('ZRANGEBYSCORE', key, '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
  if #members > 0 then due[#due + 1] = {place, members} end
end
return due
