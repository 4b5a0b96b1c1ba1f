-- A replay does not count.
local function reply_counted(name, payload)
  if name == 'replayed' then return reply(name, payload) end
  return reply_counted_original(name, payload)
end
