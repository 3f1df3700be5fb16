-- ARGV: ids, how long to remember the cancel of an unknown job, rank of ended states. Gives {record or false, ...}.
local ids, out = cmsgpack.unpack(ARGV[1]), {}
local ENDED = tonumber(ARGV[3])
load(ids)
for i, id in ipairs(ids) do
  local job = jobs[id]
  local r = job.r
  if r and r.state then
    if r.rank ~= ENDED and not r.cancel_requested then
      r.cancel_requested = true
      touch(job)
    end
    out[i] = packed(job)
  else
    job.r = {id = id, cancel_requested = true, gone_at = now + tonumber(ARGV[2])}
    touch(job)
    out[i] = false
  end
end
write_jobs()
return cmsgpack.pack(out)
