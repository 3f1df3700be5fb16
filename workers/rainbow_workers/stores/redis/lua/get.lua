-- ARGV: ids. Returns {{record, history, answer or false, what that says beside or false} or false, ...}.
local ids = cmsgpack.unpack(ARGV[1])
load(ids)
local out = {}
for i, id in ipairs(ids) do
  local job = jobs[id]
  out[i] = job.r and job.r.state and {packed(job), job.history, answer(job)} or false
end
return cmsgpack.pack(out)
