-- clusters        hash: cluster -> record, opaque
-- registrations   hash: cluster -> registration
-- state:NAME      hash: `at`, `beat`, and `v:KEY` -> when it was reported, a space, and the value, opaque
-- groups          hash: group -> members with spaces between
-- revocations     hash: "KIND VALUE" -> "before until"

-- {version, reset, names, records, states, reserved, groups, revocations, now, epoch} after version `since`; `also`: clusters
-- whose reservations to tell in any case.
local function changes(since, also)
  if since > version then restart(since + 1) end
  local reset = since > 0 and since < first
  local all = reset or since <= 0
  local names, states, sums, groups, revocations = {}, {}, {}, all, all
  for cluster in pairs(also) do sums[#sums + 1] = cluster end
  local members = call('ZRANGEBYSCORE', P .. 'changed', all and '-inf' or '(' .. int(since), '+inf')
  for _, part in ipairs(members) do
    local kind, name = string.sub(part, 1, 1), string.sub(part, 3)
    if kind == 'c' then
      names[#names + 1] = name
    elseif kind == 's' then
      states[#states + 1] = {name, call('HGETALL', P .. 'state:' .. name)}
    elseif kind == 'r' then
      if not also[name] then sums[#sums + 1] = name end
    elseif kind == 'g' then
      groups = true
    else
      revocations = true
    end
  end
  local reserved = {}
  for i, sum in ipairs(read(P .. 'reserved', sums)) do reserved[i] = {sums[i], sum or '0 0 0'} end
  return {
    int(version),
    reset and 1 or 0,
    names,
    read(P .. 'clusters', names),
    cmsgpack.pack({states, reserved}),
    groups and call('HGETALL', P .. 'groups') or false,
    revocations and call('HGETALL', P .. 'revocations') or false,
    num(now),
    {epoch.number, epoch.at, epoch.lost},
  }
end
