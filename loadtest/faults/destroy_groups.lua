-- Destroys about a third of all consumer groups and returns how many. ARGV[1] seeds the choice.
math.randomseed(ARGV[1])
local cursor, destroyed = '0', 0
repeat
  local page = redis.call('SCAN', cursor, 'TYPE', 'stream', 'COUNT', 10000)
  cursor = page[1]
  for _, stream in ipairs(page[2]) do
    for _, group in ipairs({ 'status', 'webhook', 'export' }) do
      if math.random(3) == 1 then
        destroyed = destroyed + redis.call('XGROUP', 'DESTROY', stream, group)
      end
    end
  end
until cursor == '0'
return destroyed
