-- ARGV: {state or false, cluster or false, user or false}, where to begin, how many to look at, how many are wanted.
-- Gives {how many were looked at, {record, ...}}, newest first.
local filters = cmsgpack.unpack(ARGV[1])
local state, cluster, user = filters[1], filters[2], filters[3]
local start, count, wanted = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if start == 0 then forget_old(100) end

-- Walk the smallest set that has all that fit.
local key, size
local function consider(candidate)
  local n = call('ZCARD', candidate)
  if not size or n < size then key, size = candidate, n end
end
if state then consider(P .. 'jobs:state:' .. state) end
if cluster then consider(P .. 'jobs:cluster:' .. cluster) end
if user then consider(P .. 'jobs:user:' .. user) end
if not key then key = P .. 'jobs' end

local ids, found = call('ZREVRANGE', key, start, start + count - 1), {}
for _, id in ipairs(ids) do
  if #found == wanted then break end
  local packed_record = call('HGET', P .. 'job:' .. id, 'r')
  local r = packed_record and cmsgpack.unpack(packed_record)
  if r and r.state and not (r.gone_at and r.gone_at <= now)
    and (not state or r.state == state) and (not cluster or r.cluster == cluster) and (not user or r.user == user) then
    found[#found + 1] = packed_record
  end
end
return cmsgpack.pack({#ids, found})
