-- ARGV: call id, since, head, bound, rank of assigned, batch {{id, attempt, cluster, user, name or false, nodes, cores,
-- gpus, at, submitted_at, answer, entry, reserve_s, digest or false, registration, account, array of which it is an
-- element or false, its index, digest of its jobspec or false}, ...}, {digest -> text}. Returns {letters of the outcomes,
-- {what stands in the way, ...}, changes}: H holds, R holds since before, X does not.
local PLACEABLE = {submitted = true, held = true, rejected = true, assigned = true}
local head, bound, rank = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local batch = cmsgpack.unpack(ARGV[6])
local earlier = before(ARGV[1])
texts = cmsgpack.unpack(ARGV[7])

local ids, names, registered = {}, {}, {}
for i, a in ipairs(batch) do
  ids[i] = a[1]
  if registered[a[3]] == nil then
    registered[a[3]] = false
    names[#names + 1] = a[3]
  end
end
for i, registration in ipairs(read(P .. 'registrations', names)) do
  -- Nothing is reserved on a cluster that is gone, and nothing told of it.
  registered[names[i]] = registration and true or nil
end
expire_reservations()
load(ids)

local outcomes, standing, ended = {}, {}, {}
local function refuse(i, job)
  outcomes[i] = 'X'
  if job.r and job.r.state then
    standing[#standing + 1] = {packed(job), answer(job)}
  else
    standing[#standing + 1] = {cmsgpack.pack({id = job.id, state = 'submitted', cancel_requested = true}), false, false}
  end
end

for i, a in ipairs(batch) do
  local id, attempt, cluster = a[1], a[2], a[3]
  local job = jobs[id]
  local r = job.r
  if earlier then
    outcomes[i] = string.sub(earlier, i, i)
    if outcomes[i] == 'X' then
      -- What stood in the way may be forgotten by now, but it did.
      if not r then job.r = {id = id, state = 'assigned', attempt = attempt} end
      refuse(i, job)
    end
  elseif r and (cancelled(r, a[4]) or r.user and r.user ~= a[4]) then
    refuse(i, job)
  elseif a[17] and stopped(a[17]) then
    if r and r.state and not r.gone_at then
      r.cancel_requested = true
      touch(job)
    end
    refuse(i, job)
  elseif r and r.state == 'assigned' and r.attempt == attempt and r.cluster == cluster then
    outcomes[i] = 'R'
  elseif r and r.state and not (r.attempt == attempt - 1 and PLACEABLE[r.state]) then
    refuse(i, job)
  else
    outcomes[i] = 'H'
    if r and r.state then
      if r.cluster then ended[#ended + 1] = reservation(r.cluster, r.attempt, id) end
      new_attempt(r)
    else
      r = {id = id, created = a[10], times = {}}
      job.r = r
    end
    r.state, r.rank, r.attempt, r.cluster, r.user, r.name = 'assigned', rank, attempt, cluster, a[4], a[5] or nil
    r.account = a[16] or nil
    if a[17] then r.array, r.index = a[17], a[18] end
    r.registration = a[15]
    r.times.submitted = r.times.submitted or a[10]
    r.times.assigned = r.times.assigned or a[9]
    job.answer = a[11]
    looks(r.looked, -1)
    r.looked = a[14] or nil
    looks(r.looked, 1)
    specify(r, a[19])
    note(job, '+', a[12], head, bound)
    if registered[cluster] then reserve(cluster, attempt, id, a[6], a[7], a[8], now + a[13]) end
  end
end

local letters = table.concat(outcomes)
if not earlier then remember(ARGV[1], letters) end
write_jobs()
release(ended)
write_reservations()
write_marks()
return {letters, cmsgpack.pack(standing), changes(tonumber(ARGV[2]), registered)}
