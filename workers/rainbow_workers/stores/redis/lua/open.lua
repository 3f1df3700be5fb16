-- A new connection. ARGV: run id of the server, highest version this client has seen.
-- Another run is a server that was restarted, restored or failed over: it may have lost what was written last.
local run = call('HGET', P .. 'meta', 'run')
if run ~= ARGV[1] then
  if run then restart(tonumber(ARGV[2]) + 1) end
  call('HSET', P .. 'meta', 'run', ARGV[1])
end
-- Of an older layout (see also reservations.lua): all jobs in one set.
call('UNLINK', P .. 'jobs')
return 1
