-- Ends the leases of a process that has died, so that the one that takes its
-- place sends their events again at once and not when the leases run out.
-- KEYS 1 W
-- ARGV 1 key prefix {tag}, 2 holder: the last three digits of its tokens, 3 and 4
--   first and last of the endpoints to look at, by their place in W
-- Reply: how many endpoints were looked at, how many leases were ended
-- Repeated call: finds nothing left.
local us, holder, ended = clock(), tonumber(ARGV[2]), 0
local accounts = call('ZRANGE', KEYS[1], ARGV[3], ARGV[4])
for _, account in ipairs(accounts) do
  local e = open_queue(ARGV[1], account, us)
  local leases, mine = call('ZRANGE', e.k, 0, -1, 'WITHSCORES'), {}
  for i = 1, #leases, 2 do
    if tonumber(leases[i + 1]) % 1000 == holder then mine[#mine + 1] = leases[i] end
  end
  if #mine > 0 then
    give_back(e, mine)
    look_at(e, e.now)
    ended = ended + #mine
  end
end
return {#accounts, ended}
