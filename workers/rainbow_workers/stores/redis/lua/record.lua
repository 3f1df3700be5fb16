-- ARGV: call id, keep, head, bound, rank of ended states, events {{id, attempt, state, rank, at, key of times,
-- fields, answer or false, entry, whether it ends the reservation}, ...}. Gives {applied a letter each, {record, ...},
-- {{address, ...} or false, ...}}.
local events = cmsgpack.unpack(ARGV[6])
local keep, ENDED = tonumber(ARGV[2]), tonumber(ARGV[5])
expire_reservations()
forget_old(2 * #events + 10)

local applied, records, watchers = {}, {}, {}
local earlier = before(ARGV[1])

local known_watchers = {}
local function watchers_of(id)
  if known_watchers[id] == nil then
    local live = {}
    local all = call('HGETALL', P .. 'watch:' .. id)
    for i = 1, #all, 2 do
      if tonumber(all[i + 1]) > now then live[#live + 1] = all[i] end
    end
    known_watchers[id] = #live > 0 and live
  end
  return known_watchers[id]
end

for i, e in ipairs(events) do
  local id, attempt, fields = e[1], e[2], e[7]
  local job = load(id)
  local r = job.r
  local known = r and r.state
  if earlier then
    applied[i] = string.sub(earlier, i, i)
    if not known then job.r = {id = id, state = e[3], attempt = attempt} end
  else
    if e[10] then
      local where = known and r.attempt == attempt and r.cluster or fields.cluster
      if where then release(where, attempt, id) end
    end
    local counts = not known or (r.rank ~= ENDED and (attempt > r.attempt or (attempt == r.attempt and e[4] > r.rank)))
    if counts then
      if not known then
        r = {id = id, created = e[5], entries = 0, times = {}, cancel_requested = r and r.cancel_requested, attempt = 0}
        job.r = r
      end
      if attempt > r.attempt then new_attempt(r) end
      for name, value in pairs(fields) do r[name] = value end
      r.state, r.rank, r.attempt = e[3], e[4], attempt
      r.times[e[6]] = r.times[e[6]] or e[5]
      if e[8] then job.answer = e[8] end
      if e[4] == ENDED then r.gone_at = now + keep end
    end
    applied[i] = counts and '1' or '0'
    note(job, counts and '+' or '-', e[9])
  end
  records[i] = packed(job)
  watchers[i] = watchers_of(id)
end

if not earlier then
  remember(ARGV[1], table.concat(applied))
  write_jobs(tonumber(ARGV[3]), tonumber(ARGV[4]))
end
write_reservations()
write_marks()
return cmsgpack.pack({table.concat(applied), records, watchers})
