-- watch:ID   hash: address (opaque) -> until
-- ARGV: ids, address, ttl in seconds
local ttl = tonumber(ARGV[3])
for _, id in ipairs(cmsgpack.unpack(ARGV[1])) do
  local key = P .. 'watch:' .. id
  local last = now + ttl
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    local untill = tonumber(all[i + 1])
    if untill <= now then call('HDEL', key, all[i]) elseif all[i] ~= ARGV[2] then last = math.max(last, untill) end
  end
  call('HSET', key, ARGV[2], num(now + ttl))
  call('PEXPIRE', key, int(math.ceil((last - now) * 1000)))
end
return 1
