-- ARGV: ids, how long to remember the cancel of an unknown job, rank of ended states. Gives {record or false, ...}.
local out = {}
local ENDED = tonumber(ARGV[3])
forget_old(100)
for i, id in ipairs(cmsgpack.unpack(ARGV[1])) do
  local job = load(id)
  local r = job.r
  if r and r.state then
    if r.rank ~= ENDED and not r.cancel_requested then
      r.cancel_requested = true
      touch(job)
    end
    out[i] = packed(job)
  else
    job.r = {id = id, cancel_requested = true, entries = 0, gone_at = now + tonumber(ARGV[2])}
    touch(job)
    out[i] = false
  end
end
write_jobs(1, 1)
return cmsgpack.pack(out)
