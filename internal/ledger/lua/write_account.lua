-- Creates or changes an account, and carries changed limits and suspension into
-- its rings, so that every script sees them at once and no window is reset.
-- KEYS 1 account, 2 accounts, 3... the rings
-- ARGV 1 'create' or 'update', 2 account (16 bytes), 3 endpoint letters in the
--   order of the rings, 4 expected revision of an update ('': any), then for
--   each ring its 17 bytes of limits
--   ('' keeps them), then pairs: field, value
-- Replies: written, exists (create), missing (update), conflict (the revision is
--   another)
-- Repeated call: a create answers exists, which its caller, who chose the id,
--   takes for written; an update answers conflict, and its caller applies its
--   change once more to what it finds.
local exists = redis.call('EXISTS', KEYS[1]) == 1
if ARGV[1] == 'create' and exists then return 'exists' end
if ARGV[1] == 'update' and not exists then return 'missing' end
if ARGV[4] ~= '' and redis.call('HGET', KEYS[1], 'revision') ~= ARGV[4] then return 'conflict' end
local rings = #KEYS - 2
for i = 1, rings do
  local limits = ARGV[4 + i]
  if limits ~= '' then
    redis.call('HSET', KEYS[1], 'l' .. string.sub(ARGV[3], i, i), limits)
    local ring = KEYS[2 + i]
    local before = redis.call('GETRANGE', ring, 0, 16)
    if before ~= '' then
      -- A bucket keeps no log in its first window and a window no level: what
      -- changes its kind starts over.
      if math.floor(string.byte(before, 1) / 2) % 2 ~= math.floor(string.byte(limits, 1) / 2) % 2 then
        redis.call('DEL', ring)
      else
        redis.call('SETRANGE', ring, 0, limits)
        local was, is = struct.unpack('>I4', string.sub(before, 6, 9)), struct.unpack('>I4', string.sub(limits, 6, 9))
        if math.floor(string.byte(limits, 1) / 2) % 2 == 1 and was ~= is then
          -- A bucket's debt counts in its seconds; as many requests stay owed.
          local debt = struct.unpack('>I7', redis.call('GETRANGE', ring, 46, 52))
          redis.call('SETRANGE', ring, 46, struct.pack('>I7', math.ceil(debt * is / was)))
        end
      end
    end
  end
end
for i = 5 + rings, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('SADD', KEYS[2], ARGV[2])
return 'written'
