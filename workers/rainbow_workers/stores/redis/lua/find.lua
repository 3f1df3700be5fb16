-- ARGV: {state or false, whether it is one of an ended job, cluster or false, user or false}, where to begin, how many
-- to look at, how many are wanted. Gives {how many were looked at, {record, ...}}, newest first.
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

local ids, found = call('ZREVRANGE', P .. (key or 'jobs'), start, start + count - 1), {}
for _, value in ipairs(values('job:', ids)) do
  if #found == wanted then break end
  local r = value and cmsgpack.unpack(value)
  if r and r.state and not (r.gone_at and r.gone_at <= now)
    and (not state or r.state == state) and (not cluster or r.cluster == cluster) and (not user or r.user == user) then
    found[#found + 1] = cmsgpack.pack(r)
  end
end
return cmsgpack.pack({#ids, found})
