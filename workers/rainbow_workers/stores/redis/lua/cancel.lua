-- cancels:BY       sorted set: id -> when the mark on it is forgotten, of the unknown jobs whose cancel BY asked for
-- ARGV: ids, how long to remember the cancel of an unknown job, rank of ended states, how many of these of one asker, who
-- asks ('' for anyone; missing: unknown jobs are not marked, and all known ones are). Returns {record or false, ...}.
local ids, out = cmsgpack.unpack(ARGV[1]), {}
local ENDED, MOST, by = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local gone_at = now + tonumber(ARGV[2])
local marks = {}
load(ids)
for i, id in ipairs(ids) do
  local job = jobs[id]
  local r = job.r
  out[i] = false
  if r and r.state then
    if not by or by == '' or r.user and by == 'user:' .. r.user then
      if r.rank ~= ENDED and not r.cancel_requested then
        r.cancel_requested = true
        touch(job)
      end
      out[i] = packed(job)
    end
  elseif by then
    r = r or {id = id}
    r.by = r.by or {}
    r.by[by] = true
    r.gone_at = gone_at
    job.r = r
    touch(job)
    marks[#marks + 1] = num(gone_at)
    marks[#marks + 1] = id
  end
end
if #marks > 0 then
  local key = P .. 'cancels:' .. by
  many('ZADD', key, marks)
  call('ZREMRANGEBYSCORE', key, '-inf', num(now))
  call('PEXPIRE', key, int(math.ceil((gone_at - now) * 1000)))
  local count = call('ZCARD', key)
  local over = count > MOST and call('ZRANGE', key, 0, count - MOST - 1) or {}
  local old = {}
  for _, id in ipairs(over) do
    if not jobs[id] then old[#old + 1] = id end
  end
  load(old)
  for _, id in ipairs(over) do
    call('ZREM', key, id)
    local job = jobs[id]
    local r = job.r
    if r and r.by then
      r.by[by] = nil
      if next(r.by) then touch(job) else forget(id, r) end
    end
  end
end
write_jobs()
return cmsgpack.pack(out)
