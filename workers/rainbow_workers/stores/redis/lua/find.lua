-- ARGV: {state or false, whether it is one of an ended job, cluster or false, user or false, {state of ended jobs, ...}},
-- where to begin, how many to look at, how many are wanted. Gives {how many were looked at, {record, ...}}, newest first.
local filters = cmsgpack.unpack(ARGV[1])
local state, cluster, user = filters[1], filters[3], filters[4]
local start, count, wanted = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if start == 0 then load({}) end

-- Walk the smallest set that has all that fit.
local key, size
local function consider(candidate)
  local n = call('ZCARD', P .. candidate)
  if not size or n < size then key, size = candidate, n end
end
if state then consider(filters[2] and 'jobs:state:' .. state or 'jobs:live') end
if cluster then consider('jobs:cluster:' .. cluster) end
if user then consider('jobs:user:' .. user) end

-- All jobs: the newest of every set.
local function newest()
  local all, sets = {}, {'jobs:live'}
  for _, ended in ipairs(filters[5]) do sets[#sets + 1] = 'jobs:state:' .. ended end
  for _, set in ipairs(sets) do
    local some = call('ZREVRANGE', P .. set, 0, start + count - 1, 'WITHSCORES')
    for i = 1, #some, 2 do all[#all + 1] = {tonumber(some[i + 1]), some[i]} end
  end
  table.sort(all, function(a, b) return a[1] > b[1] or a[1] == b[1] and a[2] > b[2] end)
  local out = {}
  for i = start + 1, math.min(start + count, #all) do out[#out + 1] = all[i][2] end
  return out
end

local ids, found = key and call('ZREVRANGE', P .. key, start, start + count - 1) or newest(), {}
for _, value in ipairs(values('job:', ids)) do
  if #found == wanted then break end
  local r = value and cmsgpack.unpack(value)
  if r and r.state and not (r.gone_at and r.gone_at <= now)
    and (not state or r.state == state) and (not cluster or r.cluster == cluster) and (not user or r.user == user) then
    found[#found + 1] = cmsgpack.pack(r)
  end
end
return cmsgpack.pack({#ids, found})
