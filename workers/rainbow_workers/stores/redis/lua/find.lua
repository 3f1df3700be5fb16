-- ARGV: {state or false, whether it is one of an ended job, cluster or false, user or false, {state of ended jobs, ...},
-- array whose elements are meant or false, text that its id, name, user or detail has in it or false},
-- time and id of the job to begin after (empty: begin with the newest), how many to look at, how many are wanted. Returns
-- {{time of the first event, ...}, {record, ...}, {time, id} of the last one that was looked at or false if there are no
-- more, how many were looked at}, newest first.
local filters = cmsgpack.unpack(ARGV[1])
local state, cluster, user, array, text = filters[1], filters[3], filters[4], filters[6], filters[7]
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
if array then
  key, size = (state and not filters[2] and 'jobs:live:' or 'jobs:array:') .. array, 0
end
if state then consider(filters[2] and 'jobs:state:' .. state or 'jobs:live') end
if cluster then consider('jobs:cluster:' .. cluster) end
if user then consider('jobs:user:' .. user) end
local sets = {key or 'jobs:live'}
if not key then
  for _, ended in ipairs(filters[5]) do sets[#sets + 1] = 'jobs:state:' .. ended end
end

-- Merge what the sets give: of each, `place` is the next id, and `score` its time.
local lists = {}
for _, set in ipairs(sets) do
  local some = following(P .. set)
  if #some > 0 then lists[#lists + 1] = {some = some, place = 1, score = tonumber(some[2])} end
end
local ids, scores = {}, {}
while #ids < count do
  local best
  for _, list in ipairs(lists) do
    if list.score and (not best or list.score > best.score
      or list.score == best.score and greater(list.some[list.place], best.some[best.place])) then
      best = list
    end
  end
  if not best then break end
  local i = #ids + 1
  ids[i], scores[i] = best.some[best.place], best.some[best.place + 1]
  best.place = best.place + 2
  best.score = tonumber(best.some[best.place + 1])
end

local function has(value)
  return type(value) == 'string' and string.find(value, text, 1, true)
end

local times, found, looked_at = {}, {}, 0
for i, value in ipairs(values('job:', ids)) do
  if #found == wanted then break end
  looked_at = i
  -- A look at its bytes spares most records the unpacking.
  local maybe = value and (not text or has(value) or has(ids[i]))
  local r = maybe and cmsgpack.unpack(value)
  if r and r.state and not (r.gone_at and r.gone_at <= now)
    and (not state or r.state == state) and (not cluster or r.cluster == cluster) and (not user or r.user == user)
    and (not text or has(ids[i]) or has(r.name) or has(r.user) or has(r.detail)) then
    times[#times + 1], found[#found + 1] = scores[i], cmsgpack.pack(r)
  end
end
local last = looked_at > 0 and (looked_at < #ids or #ids >= count) and {scores[looked_at], ids[looked_at]}
return cmsgpack.pack({times, found, last or false, looked_at})
