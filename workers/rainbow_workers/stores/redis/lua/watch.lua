-- watch:ID   string: address (opaque) -> until (msgpack); gone by itself after the last of them
-- ARGV: ids, address, ttl in seconds
local ttl = tonumber(ARGV[3])
for _, id in ipairs(cmsgpack.unpack(ARGV[1])) do
  local key = P .. 'watch:' .. id
  local kept, last = {[ARGV[2]] = now + ttl}, now + ttl
  local old = call('GET', key)
  for address, untill in pairs(old and cmsgpack.unpack(old) or {}) do
    if untill > now and address ~= ARGV[2] then
      kept[address] = untill
      last = math.max(last, untill)
    end
  end
  call('SET', key, cmsgpack.pack(kept), 'PX', int(math.ceil((last - now) * 1000)))
end
return 1
