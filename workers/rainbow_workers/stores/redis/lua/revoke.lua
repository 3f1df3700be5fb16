-- ARGV: "KIND VALUE", before, until
local all = call('HGETALL', P .. 'revocations')
local old_before, old_until
for i = 1, #all, 2 do
  local b, u = string.match(all[i + 1], '^(%S+) (%S+)$')
  if tonumber(u) <= now then
    call('HDEL', P .. 'revocations', all[i])
  elseif all[i] == ARGV[1] then
    old_before, old_until = b, u
  end
end
local function later(a, b)
  if a and tonumber(a) > tonumber(b) then return a end
  return b
end
call('HSET', P .. 'revocations', ARGV[1], later(old_before, ARGV[2]) .. ' ' .. later(old_until, ARGV[3]))
mark('v')
write_marks()
return 1
