-- What is taken on a cluster until its agent reports it.
--
-- reserved         hash: cluster -> "nodes cores gpus", the sum
-- reservations     hash: "CLUSTER ATTEMPT ID" -> "nodes cores gpus"
-- reserved-by-call sorted set: a list of "CLUSTER ATTEMPT ID" (msgpack), those of one call -> when they end by
--                  themselves, as far as they are there then
local deltas = {}
local new_demands, new_ends = {}, {}

local function split(demand) return string.match(demand, '^(%S+) (%S+) (%S+)$') end

local function add(cluster, n, c, g)
  local d = deltas[cluster]
  if not d then
    d = {0, 0, 0}
    deltas[cluster] = d
  end
  if n < 0 or c < 0 or g < 0 then relief = true end
  d[1] = d[1] + n
  d[2] = d[2] + c
  d[3] = d[3] + g
end

local function reservation(cluster, attempt, id) return cluster .. ' ' .. int(attempt) .. ' ' .. id end

local function write_new()
  many('HSET', P .. 'reservations', new_demands)
  for untill, members in pairs(new_ends) do call('ZADD', P .. 'reserved-by-call', untill, cmsgpack.pack(members)) end
  new_demands, new_ends = {}, {}
end

local function reserve(cluster, attempt, id, n, c, g, untill)
  local member, ends = reservation(cluster, attempt, id), num(untill)
  new_demands[#new_demands + 1] = member
  new_demands[#new_demands + 1] = int(n) .. ' ' .. int(c) .. ' ' .. int(g)
  new_ends[ends] = new_ends[ends] or {}
  table.insert(new_ends[ends], member)
  add(cluster, n, c, g)
end

-- Take these out. When nothing is reserved any more, there is nothing to end by itself either.
local function drop_reservations(members)
  many('HDEL', P .. 'reservations', members)
  if call('EXISTS', P .. 'reservations') == 0 then call('UNLINK', P .. 'reserved-by-call') end
end

-- End reservations; those that are not there are fine.
local function release(members)
  if #members == 0 then return end
  write_new()
  local found = {}
  for i, demand in ipairs(read(P .. 'reservations', members)) do
    local member = members[i]
    if demand and not found[member] then
      found[member] = true
      found[#found + 1] = member
      local n, c, g = split(demand)
      add(string.sub(member, 1, string.find(member, ' ', 1, true) - 1), -n, -c, -g)
    end
  end
  drop_reservations(found)
end

-- Those of a scheduler that died end here, some at a time, in whatever call comes next.
local function expire_reservations()
  for _, members in ipairs(call('ZRANGEBYSCORE', P .. 'reserved-by-call', '-inf', num(now), 'LIMIT', 0, 2)) do
    release(cmsgpack.unpack(members))
    call('ZREM', P .. 'reserved-by-call', members)
  end
  -- Rainbow 0.1 before its first release had each by itself.
  local older = call('ZRANGEBYSCORE', P .. 'reserved-until', '-inf', num(now), 'LIMIT', 0, 100)
  if #older > 0 then
    release(older)
    call('ZREM', P .. 'reserved-until', unpack(older))
  end
end

local function write_reservations()
  write_new()
  local names = {}
  for cluster in pairs(deltas) do names[#names + 1] = cluster end
  local args = {}
  for i, sum in ipairs(read(P .. 'reserved', names)) do
    local n, c, g = split(sum or '0 0 0')
    local d = deltas[names[i]]
    args[2 * i - 1] = names[i]
    args[2 * i] = int(n + d[1]) .. ' ' .. int(c + d[2]) .. ' ' .. int(g + d[3])
    mark('r:' .. names[i])
  end
  many('HSET', P .. 'reserved', args)
  deltas = {}
end
