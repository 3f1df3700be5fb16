-- ARGV: call id, keep, head, bound, rank of ended states, events {{id, attempt, state, rank, at, key of times,
-- fields, answer or false, entry, whether it ends the reservation, whether it is of a job that never ran}, ...}. Gives
-- {applied a letter each, {record, ...}, {{address, ...} or false, ...}}.
local BEGUN = {accepted = true, running = true}
local keep, head, bound, ENDED = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local events = cmsgpack.unpack(ARGV[6])
local earlier = before(ARGV[1])

-- A job that is met several times is read once.
local ids, place = {}, {}
for _, e in ipairs(events) do
  if not place[e[1]] then
    ids[#ids + 1] = e[1]
    place[e[1]] = #ids
  end
end
expire_reservations()
load(ids)

local watchers = values('watch:', ids)
for i, kept in ipairs(watchers) do
  local live = {}
  if kept then
    for address, untill in pairs(cmsgpack.unpack(kept)) do
      if untill > now then live[#live + 1] = address end
    end
  end
  watchers[i] = #live > 0 and live
end

local applied, records, ended, addresses = {}, {}, {}, {}
for i, e in ipairs(events) do
  local id, attempt, fields = e[1], e[2], e[7]
  local job = jobs[id]
  local r = job.r
  local known = r and r.state
  if earlier then
    applied[i] = string.sub(earlier, i, i)
    if not known then job.r = {id = id, state = e[3], attempt = attempt} end
  else
    -- Whoever names the id of somebody else's job says nothing about that job.
    local foreign = known and r.user and fields.user and r.user ~= fields.user
    if e[10] and not foreign then
      local where = known and r.attempt == attempt and r.cluster or fields.cluster
      if where then ended[#ended + 1] = reservation(where, attempt, id) end
    end
    local counts = not known or not foreign and (r.rank ~= ENDED and (attempt > r.attempt or (attempt == r.attempt and e[4] > r.rank and not (e[11] and BEGUN[r.state]))))
    if counts then
      if not known then
        r = {id = id, created = e[5], times = {}, cancel_requested = r and r.cancel_requested, attempt = 0}
        job.r = r
      end
      if attempt > r.attempt then new_attempt(r) end
      for name, value in pairs(fields) do r[name] = value end
      r.state, r.rank, r.attempt = e[3], e[4], attempt
      r.times[e[6]] = r.times[e[6]] or e[5]
      if e[8] then
        job.answer = e[8]
        looks(r.looked, -1)
        r.looked = nil
      end
      if e[4] == ENDED then r.gone_at = now + keep end
    end
    applied[i] = counts and '1' or '0'
    note(job, counts and '+' or '-', e[9], head, bound)
  end
  records[i], addresses[i] = packed(job), watchers[place[id]]
end

local letters = table.concat(applied)
if not earlier then
  remember(ARGV[1], letters)
  write_jobs()
end
release(ended)
write_reservations()
write_marks()
return cmsgpack.pack({letters, records, addresses})
