-- job:ID           string: the record without answer and history (msgpack), then its history (msgpack): a list of
--                  entries, each "+" or "-" (changed nothing) and opaque bytes; then its answer, opaque, or false
-- looked           hash: digest -> what the answers of all jobs with `looked` = digest say beside, opaque; and of all
--                  with `spec` = digest their jobspec, opaque
-- looked-by        hash: digest -> how many jobs these are
-- jobs:live        sorted set: id -> time of the first event, of all that have not ended. The same of the ended ones by
--                  state in jobs:state:S, and of all in jobs:cluster:C and jobs:user:U
--                  Elements of an array are in none of these, but all in jobs:array:ID, the live ones in jobs:live:ID
-- ended            sorted set: id -> when it is forgotten
-- moved-arrays     stream: `i` -> an array that changed, or of which an element did
-- tally            hash: "r" (on a cluster) or "w" (held), account and user, with \31 between -> how many jobs, of
--                  those whose record has an account
--
-- Beside the fields of JobRecord, a record has `rank` (of its state), `created`, `gone_at`, `looked`, `spec`, `held` (the
-- job waits to be confirmed before it starts), `registration` (the
-- one that the attempt was assigned to; empty: none) and `earlier` (registration -> the newest attempt that it had
-- before). One without `state` is of an unknown job, whose cancel was asked for: `by` says by whom (a set); or of an
-- array of which only elements are known.
local jobs, touched = {}, {}
local adds, removals = {}, {}
local lookers, texts = {}, {}

local function gather(into, key, a, b)
  local args = into[key]
  if not args then
    args = {}
    into[key] = args
  end
  args[#args + 1] = a
  if b then args[#args + 1] = b end
end

-- The set that holds a job by its state.
local function by_state(r)
  if not r.state then return nil end
  if r.array then return not r.gone_at and 'jobs:live:' .. r.array or nil end
  return r.gone_at and 'jobs:state:' .. r.state or 'jobs:live'
end

-- Where a job counts in `tally`, if it does.
local ON_CLUSTER = {assigned = 'r', accepted = 'r', running = 'r', held = 'w'}
local tallied = {}
local function tally(r)
  local kind = r.state and r.account and r.user and not r.indices and ON_CLUSTER[r.state]
  return kind and kind .. '\31' .. r.account .. '\31' .. r.user or nil
end
local function count(field, n)
  if field then tallied[field] = (tallied[field] or 0) + n end
end
local function write_tally()
  for field, n in pairs(tallied) do
    if n ~= 0 and call('HINCRBY', P .. 'tally', field, int(n)) <= 0 then call('HDEL', P .. 'tally', field) end
  end
  tallied = {}
end

-- So many jobs more, or less, have an answer that says this beside, or this jobspec.
local function looks(digest, count)
  if digest then lookers[digest] = (lookers[digest] or 0) + count end
end

-- `texts`: digest -> what it stands for, of all that may be new.
local function write_looked()
  for digest, count in pairs(lookers) do
    local left = call('HINCRBY', P .. 'looked-by', digest, count)
    if left <= 0 then
      call('HDEL', P .. 'looked-by', digest)
      call('HDEL', P .. 'looked', digest)
    elseif left == count then
      call('HSET', P .. 'looked', digest, texts[digest])
    end
  end
  lookers = {}
end

-- The jobspec of a job: the first that came stays.
local function specify(r, digest)
  if digest and not r.spec then
    r.spec = digest
    looks(digest, 1)
  end
end

-- The answer of a job, and what it says beside: opaque, or false.
local function answer(job)
  local looked = job.answer and job.r and job.r.looked
  return job.answer or false, looked and (texts[looked] or call('HGET', P .. 'looked', looked)) or false
end

-- Was the cancel of a job of this user asked for, by somebody who may?
local function cancelled(r, user)
  if not r then return false end
  if r.state then return r.cancel_requested end
  local by = r.by
  return by and (by[''] or user and by['user:' .. user]) or r.cancel_requested or false
end

local function forget(id, r)
  gather(removals, P .. 'ended', id)
  if r then
    looks(r.looked, -1)
    looks(r.spec, -1)
  end
  if r and r.array then
    gather(removals, P .. 'jobs:live:' .. r.array, id)
    gather(removals, P .. 'jobs:array:' .. r.array, id)
  elseif r and r.state then
    gather(removals, P .. by_state(r), id)
    if r.cluster then gather(removals, P .. 'jobs:cluster:' .. r.cluster, id) end
    if r.user then gather(removals, P .. 'jobs:user:' .. r.user, id) end
  end
  call('UNLINK', P .. 'job:' .. id, P .. 'answer:' .. id)
end

local function write_indexes()
  for key, args in pairs(removals) do many('ZREM', key, args) end
  for key, args in pairs(adds) do many('ZADD', key, args) end
  adds, removals = {}, {}
  write_looked()
  write_tally()
end

local function values(kind, ids)
  local out = {}
  for i = 1, #ids, STEP do
    local keys = {}
    for j = i, math.min(i + STEP - 1, #ids) do keys[#keys + 1] = P .. kind .. ids[j] end
    for _, value in ipairs(call('MGET', unpack(keys))) do out[#out + 1] = value end
  end
  return out
end

-- Forget some of those that ended long enough ago.
local function forget_old(most)
  local old = call('ZRANGEBYSCORE', P .. 'ended', '-inf', num(now), 'LIMIT', 0, most)
  for i, value in ipairs(values('job:', old)) do forget(old[i], value and cmsgpack.unpack(value)) end
  -- Before anything is written about jobs that come again.
  write_indexes()
end

-- Read the jobs that a call is about.
local function load(ids)
  forget_old(2 * #ids + 100)
  for i, value in ipairs(values('job:', ids)) do
    local id = ids[i]
    local job = {id = id, history = {}}
    if value then
      local r, history, answer = cmsgpack.unpack(value)
      if r.gone_at and r.gone_at <= now then
        forget(id, r)
      else
        job.r, job.history, job.answer = r, history, answer
        job.set, job.cluster, job.user, job.gone_at = by_state(r), r.cluster, r.user, r.gone_at
        job.tally = tally(r)
        job.counted = r.array and r.state
      end
    end
    jobs[id] = job
  end
  -- Before anything is written about jobs that come again.
  write_indexes()
end

-- The job changed: to be written, and to be packed again when it is asked for.
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

-- `head` entries at the beginning of a history stay, and the last ones up to `bound` in all.
local function note(job, sign, entry, head, bound)
  local history = job.history
  history[#history + 1] = sign .. entry
  if #history > bound then table.remove(history, head + 1) end
  touch(job)
end

local function move(id, score, old, new)
  if old == new then return end
  if old then gather(removals, P .. old, id) end
  if new then gather(adds, P .. new, score, id) end
end

-- What changed in arrays: id -> how many elements more, or less, are in a state, and the largest exit code of new ends.
local elements, moved_arrays = {}, {}
local function count_element(array, state, n)
  elements[array] = elements[array] or {counts = {}, code = -1}
  local counts = elements[array].counts
  counts[state] = (counts[state] or 0) + n
end

local function array_record(array)
  if not jobs[array] then load({array}) end
  return jobs[array]
end

-- Does no element of this array start any more? It was cancelled, or ended.
local function stopped(array)
  local r = array_record(array).r
  return r and (r.cancel_requested or r.state and r.gone_at) and true or false
end

-- An array of which no record is there is counted all the same: it comes back when the store lost data.
local UNKNOWN_FOR = 604800
local function write_arrays()
  for _, job in ipairs(touched) do
    local r = job.r
    if r.array and r.state ~= job.counted then
      if job.counted then count_element(r.array, job.counted, -1) end
      count_element(r.array, r.state, 1)
      if r.gone_at and r.returncode then
        local code = r.returncode < 0 and 128 - r.returncode or r.returncode
        elements[r.array].code = math.max(elements[r.array].code, code)
      end
    end
  end
  for array, more in pairs(elements) do
    local job = array_record(array)
    local r = job.r or {id = array, gone_at = now + UNKNOWN_FOR}
    job.r = r
    local counts = r.counts or {}
    for state, n in pairs(more.counts) do
      local left = (counts[state] or 0) + n
      counts[state] = left > 0 and left or nil
    end
    r.counts = next(counts) and counts or nil
    if more.code > (r.exit_code or -1) then r.exit_code = more.code end
    touch(job)
    moved_arrays[array] = true
  end
  elements = {}
end

local function write_jobs()
  write_arrays()
  local args = {}
  for _, job in ipairs(touched) do
    local id, r = job.id, job.r
    args[#args + 1] = P .. 'job:' .. id
    local rest, answer = job.history, job.answer or false
    args[#args + 1] = job.packed and job.packed .. cmsgpack.pack(rest, answer) or cmsgpack.pack(r, rest, answer)
    if r.state then
      local score = num(r.created)
      move(id, score, job.set, by_state(r))
      if r.indices then moved_arrays[id] = true end
      if r.array then
        if not job.counted then gather(adds, P .. 'jobs:array:' .. r.array, score, id) end
      elseif job.cluster ~= r.cluster then
        move(id, score, job.cluster and 'jobs:cluster:' .. job.cluster, r.cluster and 'jobs:cluster:' .. r.cluster)
      end
      if not r.array and job.user ~= r.user then
        move(id, score, job.user and 'jobs:user:' .. job.user, r.user and 'jobs:user:' .. r.user)
      end
    end
    count(job.tally, -1)
    job.tally = tally(r)
    count(job.tally, 1)
    if r.gone_at ~= job.gone_at then
      if r.gone_at then gather(adds, P .. 'ended', num(r.gone_at), id) else gather(removals, P .. 'ended', id) end
    end
  end
  for i = 1, #args, STEP do call('MSET', unpack(args, i, math.min(i + STEP - 1, #args))) end
  write_indexes()
  for array in pairs(moved_arrays) do call('XADD', P .. 'moved-arrays', 'MAXLEN', '~', 100000, '*', 'i', array) end
end

-- What an attempt leaves on the record; the next one starts without.
local function new_attempt(r)
  if (r.registration or '') ~= '' then
    r.earlier = r.earlier or {}
    r.earlier[r.registration] = r.attempt
  end
  r.registration = ''
  r.flux_id, r.returncode, r.code, r.detail, r.output = nil, nil, nil, nil, nil
end

-- A call that was sent twice: what it came to at the first time, or false. Remembered for a minute, which is longer
-- than any client goes on with one call.
local function before(call_id) return call('GET', P .. 'call:' .. call_id) end
local function remember(call_id, outcome) call('SET', P .. 'call:' .. call_id, outcome, 'PX', 60000) end
