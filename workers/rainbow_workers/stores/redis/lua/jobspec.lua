-- ARGV: id. Returns the jobspec that is kept for a job, opaque, or false.
load({ARGV[1]})
local r = jobs[ARGV[1]].r
return r and r.state and r.spec and call('HGET', P .. 'looked', r.spec) or false
