-- ARGV: call id, since, head, bound, batch {{id, attempt, cluster, user, name or false, demand, at, submitted_at,
-- answer, entry, rank, reserve_s}, ...}. Gives {outcome a letter each, {what stands in the way, ...}, changes}:
-- H holds, R holds since before, X does not.
local PLACEABLE = {submitted = true, held = true, rejected = true, assigned = true}
local batch = cmsgpack.unpack(ARGV[5])
expire_reservations()
forget_old(2 * #batch + 10)

local outcomes, standing = {}, {}
local earlier = before(ARGV[1])
local function refuse(i, job)
  outcomes[i] = 'X'
  if job.r.state then
    standing[#standing + 1] = {packed(job), job.answer or call('HGET', P .. 'job:' .. job.id, 'a')}
  else
    standing[#standing + 1] = {cmsgpack.pack({id = job.id, state = 'submitted', cancel_requested = true}), false}
  end
end

local registered, names = {}, {}
for _, a in ipairs(batch) do
  if registered[a[3]] == nil then
    registered[a[3]] = false
    names[#names + 1] = a[3]
  end
end
for i, registration in ipairs(read(P .. 'registrations', names)) do registered[names[i]] = registration end

for i, a in ipairs(batch) do
  local id, attempt, cluster = a[1], a[2], a[3]
  local job = load(id)
  local r = job.r
  if earlier then
    outcomes[i] = string.sub(earlier, i, i)
    if outcomes[i] == 'X' then
      -- What stood in the way may be forgotten by now: then it does not any more, but it did.
      if not r then job.r = {id = id, state = 'assigned', attempt = attempt} end
      refuse(i, job)
    end
  elseif r and r.cancel_requested then
    refuse(i, job)
  elseif r and r.state == 'assigned' and r.attempt == attempt and r.cluster == cluster then
    outcomes[i] = 'R'
  elseif r and not (r.attempt == attempt - 1 and PLACEABLE[r.state]) then
    refuse(i, job)
  else
    outcomes[i] = 'H'
    if r then
      if r.cluster then release(r.cluster, r.attempt, id) end
      new_attempt(r)
    else
      r = {id = id, created = a[8], entries = 0, times = {}}
      job.r = r
    end
    r.state, r.rank, r.attempt, r.cluster, r.user, r.name = 'assigned', a[11], attempt, cluster, a[4], a[5] or nil
    r.times.submitted = r.times.submitted or a[8]
    r.times.assigned = r.times.assigned or a[7]
    job.answer = a[9]
    note(job, '+', a[10])
    if registered[cluster] then reserve(cluster, attempt, id, a[6], now + a[12]) end
  end
end

if not earlier then remember(ARGV[1], table.concat(outcomes)) end
write_jobs(tonumber(ARGV[3]), tonumber(ARGV[4]))
write_reservations()
write_marks()
for name, registration in pairs(registered) do
  if not registration then registered[name] = nil end
end
return {table.concat(outcomes), cmsgpack.pack(standing), changes(tonumber(ARGV[2]), registered)}
