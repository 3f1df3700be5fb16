-- ARGV: ids. Gives {{field, value, ...}, ...}, empty for an unknown job.
local out = {}
for i, id in ipairs(cmsgpack.unpack(ARGV[1])) do
  local r = load(id).r
  out[i] = r and r.state and call('HGETALL', P .. 'job:' .. id) or {}
end
return cmsgpack.pack(out)
