-- job:ID               hash: `r` record without answer and history (msgpack), `a` answer (opaque), `hN` entry N of the
--                      history: "+" or "-" (changed nothing) and the entry, opaque
-- jobs                 sorted set: id -> time of the first event; the same by state, cluster and user in
--                      jobs:state:S, jobs:cluster:C, jobs:user:U
-- ended                sorted set: id -> when it is forgotten
--
-- Beside the fields of JobRecord, `r` has `rank` (of its state), `created`, `entries` (ever made) and `gone_at`. An `r`
-- without `state` is a job nobody knows, whose cancel was asked for.
local jobs, touched = {}, {}
local adds, removals = {}, {}

local function add_to(key, score, id)
  local args = adds[key]
  if not args then
    args = {}
    adds[key] = args
  end
  args[#args + 1] = score
  args[#args + 1] = id
end
local function remove_from(key, id)
  local args = removals[key]
  if not args then
    args = {}
    removals[key] = args
  end
  args[#args + 1] = id
end

local function forget(id, r)
  call('ZREM', P .. 'ended', id)
  call('ZREM', P .. 'jobs', id)
  if r then
    if r.state then call('ZREM', P .. 'jobs:state:' .. r.state, id) end
    if r.cluster then call('ZREM', P .. 'jobs:cluster:' .. r.cluster, id) end
    if r.user then call('ZREM', P .. 'jobs:user:' .. r.user, id) end
  end
  call('UNLINK', P .. 'job:' .. id)
end

-- Forget jobs that ended long enough ago; at most `limit`, before anything is loaded.
local function forget_old(limit)
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'ended', '-inf', num(now), 'LIMIT', 0, limit)) do
    local packed = call('HGET', P .. 'job:' .. id, 'r')
    forget(id, packed and cmsgpack.unpack(packed))
  end
end

local function load(id)
  local job = jobs[id]
  if job then return job end
  job = {id = id, entries = {}}
  local packed = call('HGET', P .. 'job:' .. id, 'r')
  if packed then
    local r = cmsgpack.unpack(packed)
    if r.gone_at and r.gone_at <= now then
      forget(id, r)
    else
      job.r, job.packed = r, packed
      job.state, job.cluster, job.user, job.gone_at = r.state, r.cluster, r.user, r.gone_at
    end
  end
  jobs[id] = job
  return job
end

-- The job changed: to be written, and packed anew for whoever asks.
local function touch(job)
  job.packed = nil
  if not job.touched then
    job.touched = true
    touched[#touched + 1] = job
  end
end

local function packed(job)
  if not job.packed then job.packed = cmsgpack.pack(job.r) end
  return job.packed
end

local function note(job, sign, entry)
  local r = job.r
  job.entries[#job.entries + 1] = 'h' .. int(r.entries)
  job.entries[#job.entries + 1] = sign .. entry
  r.entries = r.entries + 1
  touch(job)
end

local function move(index, id, score, old, new)
  if old == new then return end
  if old then remove_from(P .. index .. old, id) end
  if new then add_to(P .. index .. new, score, id) end
end

-- `head` entries at the beginning of a history stay, and the last ones up to `bound` in all.
local function write_jobs(head, bound)
  for _, job in ipairs(touched) do
    local id, r, key = job.id, job.r, P .. 'job:' .. job.id
    local args = job.entries
    args[#args + 1] = 'r'
    args[#args + 1] = packed(job)
    if job.answer then
      args[#args + 1] = 'a'
      args[#args + 1] = job.answer
    end
    many('HSET', key, args)
    if r.entries > bound then
      local made = (#args - (job.answer and 4 or 2)) / 2
      for n = math.max(r.entries - made, bound), r.entries - 1 do
        call('HDEL', key, 'h' .. int(n - (bound - head)))
      end
    end
    if r.state then
      local score = num(r.created)
      if not job.state then add_to(P .. 'jobs', score, id) end
      move('jobs:state:', id, score, job.state, r.state)
      move('jobs:cluster:', id, score, job.cluster, r.cluster)
      move('jobs:user:', id, score, job.user, r.user)
    end
    if r.gone_at ~= job.gone_at then
      if r.gone_at then add_to(P .. 'ended', num(r.gone_at), id) else remove_from(P .. 'ended', id) end
    end
  end
  for key, args in pairs(removals) do many('ZREM', key, args) end
  for key, args in pairs(adds) do many('ZADD', key, args) end
end

-- What an attempt leaves on the record; the next one starts without.
local function new_attempt(r)
  r.flux_id, r.returncode, r.code, r.detail, r.output = nil, nil, nil, nil, nil
end

-- A call that was sent twice: what it came to at the first time, or false. Remembered for a minute, which is longer
-- than any client goes on with one call.
local function before(call_id) return call('GET', P .. 'call:' .. call_id) end
local function remember(call_id, outcome) call('SET', P .. 'call:' .. call_id, outcome, 'PX', 60000) end
