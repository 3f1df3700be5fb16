-- ARGV: {{id, {id of another job, ...}}, ...}: they do not wait for these any more.
for _, d in ipairs(cmsgpack.unpack(ARGV[1])) do
  for _, other in ipairs(d[2]) do
    local key = P .. 'after:' .. other
    call('HDEL', key, d[1])
    if call('HLEN', key) == 1 and call('HEXISTS', key, '') == 1 then call('DEL', key) end
  end
end
return 1
