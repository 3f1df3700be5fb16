-- ARGV: reports {{name, registration or false, heartbeat, {key, "AT VALUE", ...}, {{id, attempt}, ...}}, ...}, at
local at = tonumber(ARGV[2])
local reports = cmsgpack.unpack(ARGV[1])
expire_reservations()
local names, ended = {}, {}
for i, report in ipairs(reports) do names[i] = report[1] end
local registrations = read(P .. 'registrations', names)
for i, report in ipairs(reports) do
  local name, registration = report[1], registrations[i]
  if registration and (not report[2] or report[2] == registration) then
    local key = P .. 'state:' .. name
    local old = call('HMGET', key, 'at', 'beat')
    local last, beat = tonumber(old[1] or 0), tonumber(old[2] or 0)
    local values = report[4]
    if at < last then
      -- Others came first that were sent later: each value is weighed by itself.
      for j = 1, #values, 2 do
        local kept = call('HGET', key, values[j])
        if not kept or tonumber(string.match(kept, '^%S+')) <= at then call('HSET', key, values[j], values[j + 1]) end
      end
      values = {}
    end
    values[#values + 1] = 'at'
    values[#values + 1] = num(math.max(last, at))
    if report[3] then
      values[#values + 1] = 'beat'
      values[#values + 1] = num(math.max(beat, at))
    end
    many('HSET', key, values)
    mark('s:' .. name)
    for _, included in ipairs(report[5]) do ended[#ended + 1] = reservation(name, included[2], included[1]) end
  end
end
release(ended)
write_reservations()
write_marks()
return 1
