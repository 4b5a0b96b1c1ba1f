-- A window reaches half as far back.
local function advance(tail, at, horizon)
  return advance_original(tail, at, (horizon + (decided or horizon)) / 2)
end
