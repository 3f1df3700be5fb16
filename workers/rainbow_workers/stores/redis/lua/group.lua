-- ARGV: group, members with spaces between (none: remove it)
local old = call('HGET', P .. 'groups', ARGV[1]) or ''
if old ~= ARGV[2] then
  if ARGV[2] == '' then
    call('HDEL', P .. 'groups', ARGV[1])
  else
    call('HSET', P .. 'groups', ARGV[1], ARGV[2])
  end
  mark('g')
  write_marks()
end
return 1
