-- The one clock of every script: microseconds since 1970, Redis's own, read
-- once per script. Tests put a file of their own in this file's place.
local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end
