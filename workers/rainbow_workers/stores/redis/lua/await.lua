-- after:ID   hash: job that waits for ID -> 1; and '' -> the state in which ID ended, when it has
-- moved      stream: `i` -> a job that started or ended while others waited for it, or ended while it waited itself
-- ARGV: rank of ended states, seconds that a key lives after the last look, {{id, user, {id of another job, ...}}, ...}.
-- Returns {{{state, started, ended} or false, ...}, ...}.
local ENDED, ttl = tonumber(ARGV[1]), ARGV[2]
local dependents = cmsgpack.unpack(ARGV[3])
local ids, seen = {}, {}
for _, d in ipairs(dependents) do
  for _, other in ipairs(d[3]) do
    if not seen[other] then
      seen[other] = true
      ids[#ids + 1] = other
    end
  end
end
load(ids)
local out = {}
for i, d in ipairs(dependents) do
  local found = {}
  for j, other in ipairs(d[3]) do
    local job, key = jobs[other], P .. 'after:' .. other
    local r = job.r
    found[j] = false
    if not (r and r.state) then
      local ended = call('HGET', key, d[1]) and call('HGET', key, '')
      if ended then found[j] = {ended, true, true} end
    elseif r.user == d[2] then
      call('HSET', key, d[1], 1)
      if r.rank == ENDED then call('HSET', key, '', r.state) end
      if not r.awaited then
        r.awaited = true
        touch(job)
      end
      found[j] = {r.state, r.times.running and true or false, r.rank == ENDED}
    end
    if found[j] then call('EXPIRE', key, ttl) end
  end
  out[i] = found
end
write_jobs()
return cmsgpack.pack(out)
