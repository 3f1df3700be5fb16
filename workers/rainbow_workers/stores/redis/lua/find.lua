-- ARGV: {state or false, whether it is one of an ended job, cluster or false, user or false, {state of ended jobs, ...}},
-- time and id of the job to begin after (empty: begin with the newest), how many to look at, how many are wanted. Gives
-- {{time of the first event, ...}, {record, ...}, {time, id} of the last one that was looked at or false if there are no
-- more, how many were looked at}, newest first.
local filters = cmsgpack.unpack(ARGV[1])
local state, cluster, user = filters[1], filters[3], filters[4]
local at, id, count, wanted = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if at == '' then load({}) end

-- As the server orders members of one score: byte by byte, whatever the locale.
local function greater(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

-- The next `count` of a set: {id, time, ...}.
local function following(set)
  local low = 0
  if at ~= '' then
    low = call('ZCOUNT', set, '(' .. at, '+inf')
    local high = low + call('ZCOUNT', set, at, at)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if greater(id, call('ZREVRANGE', set, middle, middle)[1]) then high = middle else low = middle + 1 end
    end
  end
  return call('ZREVRANGE', set, low, low + count - 1, 'WITHSCORES')
end

-- The smallest set that has all that fit; without filters the sets of all states.
local key, size
local function consider(candidate)
  local n = call('ZCARD', P .. candidate)
  if not size or n < size then key, size = candidate, n end
end
if state then consider(filters[2] and 'jobs:state:' .. state or 'jobs:live') end
if cluster then consider('jobs:cluster:' .. cluster) end
if user then consider('jobs:user:' .. user) end
local sets = {key or 'jobs:live'}
if not key then
  for _, ended in ipairs(filters[5]) do sets[#sets + 1] = 'jobs:state:' .. ended end
end

local all = {}
for _, set in ipairs(sets) do
  local some = following(P .. set)
  for i = 1, #some, 2 do all[#all + 1] = {tonumber(some[i + 1]), some[i], some[i + 1]} end
end
if #sets > 1 then
  table.sort(all, function(a, b) return a[1] > b[1] or a[1] == b[1] and greater(a[2], b[2]) end)
end
local ids = {}
for i = 1, math.min(count, #all) do ids[i] = all[i][2] end

local times, found, looked_at = {}, {}, 0
for i, value in ipairs(values('job:', ids)) do
  if #found == wanted then break end
  looked_at = i
  local r = value and cmsgpack.unpack(value)
  if r and r.state and not (r.gone_at and r.gone_at <= now)
    and (not state or r.state == state) and (not cluster or r.cluster == cluster) and (not user or r.user == user) then
    times[#times + 1], found[#found + 1] = all[i][3], cmsgpack.pack(r)
  end
end
local last = looked_at > 0 and (looked_at < #all or #all >= count) and {all[looked_at][3], all[looked_at][2]}
return cmsgpack.pack({times, found, last or false, looked_at})
