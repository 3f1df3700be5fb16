-- What is taken on a cluster until its agent reports it.
--
-- reserved         hash: cluster -> "nodes cores gpus", the sum
-- reserved:NAME    hash: "ATTEMPT ID" -> "nodes cores gpus"
-- reserved-until   sorted set: "NAME ATTEMPT ID" -> when it ends by itself
local deltas = {}

local function add(cluster, demand, sign)
  local n, c, g = string.match(demand, '^(%S+) (%S+) (%S+)$')
  local d = deltas[cluster]
  if not d then
    d = {0, 0, 0}
    deltas[cluster] = d
  end
  d[1] = d[1] + sign * n
  d[2] = d[2] + sign * c
  d[3] = d[3] + sign * g
end

local function reserve(cluster, attempt, id, demand, untill)
  local entry = int(attempt) .. ' ' .. id
  call('HSET', P .. 'reserved:' .. cluster, entry, demand)
  call('ZADD', P .. 'reserved-until', num(untill), cluster .. ' ' .. entry)
  add(cluster, demand, 1)
end

local function drop(cluster, entry)
  local demand = call('HGET', P .. 'reserved:' .. cluster, entry)
  if demand then
    call('HDEL', P .. 'reserved:' .. cluster, entry)
    call('ZREM', P .. 'reserved-until', cluster .. ' ' .. entry)
    add(cluster, demand, -1)
  end
end

local function release(cluster, attempt, id) drop(cluster, int(attempt) .. ' ' .. id) end

-- Those of a scheduler that died end here, some at a time, in whatever call comes next.
local function expire_reservations()
  local late = call('ZRANGEBYSCORE', P .. 'reserved-until', '-inf', num(now), 'LIMIT', 0, 500)
  for _, member in ipairs(late) do
    local space = string.find(member, ' ', 1, true)
    drop(string.sub(member, 1, space - 1), string.sub(member, space + 1))
  end
end

local function write_reservations()
  local names = {}
  for cluster in pairs(deltas) do names[#names + 1] = cluster end
  if #names == 0 then return end
  local args = {}
  for i, sum in ipairs(read(P .. 'reserved', names)) do
    local n, c, g = string.match(sum or '0 0 0', '^(%S+) (%S+) (%S+)$')
    local d = deltas[names[i]]
    args[#args + 1] = names[i]
    args[#args + 1] = int(n + d[1]) .. ' ' .. int(c + d[2]) .. ' ' .. int(g + d[3])
    mark('r:' .. names[i])
  end
  many('HSET', P .. 'reserved', args)
  deltas = {}
end
