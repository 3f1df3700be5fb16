-- Assign jobs that the store does not know yet, as nearly all are: what to write comes ready, so that nothing is read
-- into Lua.
-- ARGV: call id, since, seconds reserved, batch {{job key, ...}, {job key, what it holds, ...}, {score, id, ...},
-- {{index, {score, id, ...}}, ...}, {reservation, demand, ...}, {cluster, ...}, {nodes, cores, gpus, ...}, {digest ->
-- count}, {digest -> text}, {cluster -> {nodes, cores, gpus in all}, of those that must have room now}, {field of the
-- tally -> count}, {array -> how many elements of it}}. Returns {1,
-- changes}; {0, changes} when one has none, and nothing is done; false, and nothing is done, when it is not so simple:
-- `assign` is to be called instead.
local keys, jobs_, scores, indexes, demands, names, sums, counts, looked, totals, tallies, arrays =
  unpack(cmsgpack.unpack(ARGV[4]))
local earlier = before(ARGV[1])
if earlier then return earlier == 'C' and {0, changes(tonumber(ARGV[2]), {})} or false end
for i = 1, #keys, STEP do
  for _, known in ipairs(call('MGET', unpack(keys, i, math.min(i + STEP - 1, #keys)))) do
    if known then return false end
  end
end
for array in pairs(arrays) do
  if stopped(array) then return false end
end
local registered = {}
for i, registration in ipairs(read(P .. 'registrations', names)) do
  if not registration then return false end
  registered[names[i]] = true
end
expire_reservations()
forget_old(2 * #keys + 100)

for i, sum in ipairs(read(P .. 'reserved', names)) do
  local name = names[i]
  local total = totals[name]
  if total then
    local free = call('HMGET', P .. 'state:' .. name, 'v:nodes_free', 'v:cores_free', 'v:gpus_free')
    local taken, expired = {split(sum or '0 0 0')}, deltas[name] or {0, 0, 0}
    for kind = 1, 3 do
      local wanted = sums[3 * i - 3 + kind]
      local left = free[kind] and tonumber(string.match(free[kind], ' (.*)$')) or total[kind]
      if wanted > 0 and tonumber(taken[kind]) + expired[kind] + wanted > left then
        -- When this call comes again, late, it is too late.
        remember(ARGV[1], 'C')
        write_reservations()
        write_marks()
        return {0, changes(tonumber(ARGV[2]), registered)}
      end
    end
  end
end

remember(ARGV[1], string.rep('H', #keys))
for i = 1, #jobs_, STEP do call('MSET', unpack(jobs_, i, math.min(i + STEP - 1, #jobs_))) end
texts = looked
for digest, count in pairs(counts) do looks(digest, count) end
write_looked()
for field, n in pairs(tallies or {}) do count(field, n) end
write_tally()
many('ZADD', P .. 'jobs:live', scores)
for _, index in ipairs(indexes) do many('ZADD', P .. index[1], index[2]) end
for array, n in pairs(arrays) do count_element(array, 'assigned', n) end
write_jobs()
local members = {}
for i = 1, #demands, 2 do members[#members + 1] = demands[i] end
new_demands, new_ends = demands, {[num(now + tonumber(ARGV[3]))] = members}
for i, name in ipairs(names) do add(name, sums[3 * i - 2], sums[3 * i - 1], sums[3 * i]) end
write_reservations()
write_marks()
return {1, changes(tonumber(ARGV[2]), registered)}
