-- ARGV: call id, keep, head, bound, rank of ended states, events {{id, attempt, state, rank, at, key of times,
-- fields, answer or false, entry, whether it ends the reservation, whether it is of a job that never ran, cluster of the
-- sender or false, its registration, whether it proved that the attempt is its own, whether the state says that the job
-- started, whether it waits to be confirmed, digest of the jobspec or false}, ...}, how many that moved are told of (see
-- await.lua), {digest -> text}. Returns {letters of the results: 1 applied, 0 not, F refused; {record, ...},
-- {{address, ...} or false, ...}}.
local MOST_MOVED = ARGV[7]
local BEGUN = {accepted = true, running = true}
local HOLDABLE = {submitted = true, rejected = true}
local keep, head, bound, ENDED = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local events = cmsgpack.unpack(ARGV[6])
local earlier = before(ARGV[1])
texts = cmsgpack.unpack(ARGV[8])

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

-- What the sender of an event has to say about attempt `attempt` of a job: `all` for a worker and for the registration
-- that the attempt was assigned to, `proof` for one that shows a grant, `past` for one that had it, nil for others. A
-- record of an earlier release names no registration.
local function standing(r, known, attempt, e)
  if not e[12] then return 'all' end
  if known and r.attempt == attempt and r.cluster == e[12] and (r.registration == nil or r.registration == e[13]) then
    return 'all'
  end
  if e[14] then return 'proof' end
  if known and attempt < r.attempt and r.earlier and (r.earlier[e[13]] or -1) >= attempt then return 'past' end
end

local applied, records, ended, addresses, moved = {}, {}, {}, {}, {}
for i, e in ipairs(events) do
  local id, attempt, fields = e[1], e[2], e[7]
  local job = jobs[id]
  local r = job.r
  local known = r and r.state
  local says = standing(r, known, attempt, e)
  if earlier then
    applied[i] = string.sub(earlier, i, i)
    if not known then job.r = {id = id, state = e[3], attempt = attempt} end
  elseif not says then
    applied[i] = 'F'
  else
    -- An event under the id of another user's job changes nothing of that job.
    local foreign = known and r.user and fields.user and r.user ~= fields.user
    if e[10] and not foreign then
      local where = e[12] or known and r.attempt == attempt and r.cluster or fields.cluster
      if where then ended[#ended + 1] = reservation(where, attempt, id) end
    end
    local counts = not known
    if known and not foreign and r.rank ~= ENDED and says ~= 'past' then
      if attempt > r.attempt then
        counts = true
      elseif attempt == r.attempt and says == 'proof' then
        counts = e[15] and (not BEGUN[r.state] or r.held)
      else
        counts = attempt == r.attempt and e[4] > r.rank and not (e[11] and BEGUN[r.state])
          and (e[3] ~= 'held' or HOLDABLE[r.state])
      end
    end
    if counts then
      if not known then
        local counted = r or {}
        r = {id = id, created = e[5], times = {}, cancel_requested = cancelled(r, fields.user), attempt = 0, registration = ''}
        r.counts, r.exit_code = counted.counts, counted.exit_code
        job.r = r
      end
      if attempt > r.attempt then new_attempt(r) end
      if e[12] then r.registration = e[13] end
      r.held = e[16] or nil
      local waited = r.state == 'held'
      for name, value in pairs(fields) do r[name] = value end
      r.state, r.rank, r.attempt = e[3], e[4], attempt
      r.times[e[6]] = r.times[e[6]] or e[5]
      if e[8] then
        job.answer = e[8]
        looks(r.looked, -1)
        r.looked = nil
      end
      specify(r, e[17])
      if e[4] == ENDED then r.gone_at = now + keep end
      if r.array and e[4] ~= ENDED and stopped(r.array) then r.cancel_requested = true end
      if r.awaited and (e[4] == ENDED or e[3] == 'running') or waited and e[4] == ENDED then
        moved[#moved + 1] = id
        if r.awaited and e[4] == ENDED and call('EXISTS', P .. 'after:' .. id) == 1 then
          call('HSET', P .. 'after:' .. id, '', r.state)
        end
      end
    end
    applied[i] = counts and '1' or '0'
    if not foreign then note(job, counts and '+' or '-', e[9], head, bound) end
  end
  if applied[i] == 'F' then
    records[i] = known and packed(job) or cmsgpack.pack({id = id, state = e[3], attempt = attempt})
    addresses[i] = false
  else
    records[i], addresses[i] = packed(job), watchers[place[id]]
  end
end

local letters = table.concat(applied)
if not earlier then
  remember(ARGV[1], letters)
  write_jobs()
  for _, id in ipairs(moved) do call('XADD', P .. 'moved', 'MAXLEN', '~', MOST_MOVED, '*', 'i', id) end
end
release(ended)
write_reservations()
write_marks()
return cmsgpack.pack({letters, records, addresses})
