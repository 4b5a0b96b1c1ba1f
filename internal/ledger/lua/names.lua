-- Names for what everything below calls, looked up once instead of twice with
-- every use. While a library is loaded it may not touch anything global, so the
-- first operation to run fills them in (script.go).
local call, pack, parse, byte, char, find, format, sub, ceil, floor, max, min

local function fill_in_names()
  call, pack, parse = redis.call, struct.pack, struct.unpack
  byte, char, find, format, sub = string.byte, string.char, string.find, string.format, string.sub
  ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
end
