-- ARGV: ids. Gives {{record, history, answer or false} or false, ...}.
local ids = cmsgpack.unpack(ARGV[1])
load(ids)
local answers, out = values('answer:', ids), {}
for i, id in ipairs(ids) do
  local job = jobs[id]
  out[i] = job.r and job.r.state and {packed(job), job.history, answers[i]} or false
end
return cmsgpack.pack(out)
