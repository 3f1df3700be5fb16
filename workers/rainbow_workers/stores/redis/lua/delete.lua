-- ARGV: name, how many deletions to remember
-- deleted   sorted set: cluster -> version at which it was deleted
local name, bound = ARGV[1], tonumber(ARGV[2])
local gone = call('HDEL', P .. 'registrations', name) == 1
if gone then
  call('HDEL', P .. 'clusters', name)
  call('HDEL', P .. 'reserved', name)
  call('DEL', P .. 'state:' .. name)
  local mine, prefix = {}, name .. ' '
  for _, member in ipairs(call('HKEYS', P .. 'reservations')) do
    if string.sub(member, 1, #prefix) == prefix then mine[#mine + 1] = member end
  end
  drop_reservations(mine)
  call('ZREM', P .. 'changed', 's:' .. name, 'r:' .. name)
  mark('c:' .. name)
end
local groups = call('HGETALL', P .. 'groups')
for i = 1, #groups, 2 do
  local left, found = {}, false
  for member in string.gmatch(groups[i + 1], '%S+') do
    if member == name then found = true else left[#left + 1] = member end
  end
  if found then
    if #left > 0 then
      call('HSET', P .. 'groups', groups[i], table.concat(left, ' '))
    else
      call('HDEL', P .. 'groups', groups[i])
    end
    mark('g')
  end
end
write_marks()
if gone then
  call('ZADD', P .. 'deleted', int(version), name)
  -- A reader that was last here before the oldest forgotten deletion would not hear of it: it reads everything again.
  while call('ZCARD', P .. 'deleted') > bound do
    local oldest = call('ZRANGE', P .. 'deleted', 0, 0, 'WITHSCORES')
    call('ZREM', P .. 'deleted', oldest[1])
    call('ZREM', P .. 'changed', 'c:' .. oldest[1])
    first = math.max(first, tonumber(oldest[2]))
    call('HSET', P .. 'meta', 'first', int(first))
  end
end
return 1
