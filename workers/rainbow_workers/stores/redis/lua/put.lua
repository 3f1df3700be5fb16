-- ARGV: name, record, registration, "1" when one is expected, that one. Returns 1, or 0 for a conflict.
local name, record = ARGV[1], ARGV[2]
local current = call('HGET', P .. 'registrations', name)
if current and call('HGET', P .. 'clusters', name) == record then return 1 end
if current ~= (ARGV[4] == '1' and ARGV[5]) then return current and 0 or -1 end
call('HSET', P .. 'clusters', name, record)
call('HSET', P .. 'registrations', name, ARGV[3])
mark('c:' .. name)
if not current then
  call('HSET', P .. 'reserved', name, '0 0 0')
  call('ZREM', P .. 'deleted', name)
  mark('s:' .. name)
  mark('r:' .. name)
end
write_marks()
return 1
