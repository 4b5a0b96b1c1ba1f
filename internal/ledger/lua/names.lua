-- Names for what everything below calls, looked up once instead of twice with
-- every use. While a library is loaded it may not touch anything global, so the
-- first operation to run fills them in (script.go).
local call, pack, parse, byte, char, find, format, sub, ceil, floor, max, min

-- Tells the partition's owner, if there is one, that an endpoint has changed, or that
-- something was scheduled for it. Whoever takes the partition over reads all anyway.
local function note(notes, account) call('XADD', notes, 'MAXLEN', '~', 1000, '*', 'w', account) end

local function fill_in_names()
  call, pack, parse = redis.call, struct.pack, struct.unpack
  byte, char, find, format, sub = string.byte, string.char, string.find, string.format, string.sub
  ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
end
