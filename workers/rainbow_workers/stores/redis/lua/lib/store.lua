-- The prefix, the clock, and the counter of changes. Comes first in every script.
--
-- meta       hash: `version` (counts writes), `first` (a reader with an older version has to read everything), `run`, `epoch` (the
--            version at which the data was created or may have lost writes), `epoch_at`, `lost` (1: it may have)
-- changed    sorted set: part -> version at which it last changed; parts are `c:NAME` (record), `s:NAME` (state),
--            `r:NAME` (sum of reservations), `g` (groups), `v` (revocations)
-- relief     stream of one entry, its id the newest version that may make room for a job: schedulers block on it
local P = KEYS[1]
local call = redis.call
local clock = call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000

-- Lua would write large numbers as 1.7e+15. Times are written to the microsecond.
local function int(n) return string.format('%.0f', n) end
local function num(n) return string.format('%.6f', n) end

-- Commands with as many arguments as there are: unpack has a limit. Steps are even, for pairs.
local STEP = 1000
local function many(command, key, list)
  for i = 1, #list, STEP do
    call(command, key, unpack(list, i, math.min(i + STEP - 1, #list)))
  end
end
local function read(key, fields)
  local out = {}
  for i = 1, #fields, STEP do
    for _, value in ipairs(call('HMGET', key, unpack(fields, i, math.min(i + STEP - 1, #fields)))) do
      out[#out + 1] = value
    end
  end
  return out
end

local meta = call('HMGET', P .. 'meta', 'version', 'first', 'epoch', 'epoch_at', 'lost')
local version, first = tonumber(meta[1]), tonumber(meta[2])

-- Of data that an earlier release wrote, an epoch is known with its next restart.
local epoch = {number = meta[3] or '0', at = meta[4] or '0', lost = meta[5] or '0'}

-- Begin a new count, above every version anybody has seen: all readers then reload everything. It starts from the
-- time in microseconds, so that it is above the old one also when that was lost with the data.
local function restart(at_least)
  epoch.lost = version and '1' or '0'
  version = math.max(version or 0, at_least, math.floor(now * 1000000))
  first = version
  epoch.number, epoch.at = int(version), num(now)
  call('HSET', P .. 'meta', 'version', int(version), 'first', int(first), 'epoch', epoch.number, 'epoch_at', epoch.at,
    'lost', epoch.lost)
end
if not version then restart(0) end

local marks, relief = {}, false
local function mark(part)
  marks[part] = true
  if string.sub(part, 1, 1) ~= 'r' then relief = true end
end

-- All that one call changed gets one new version.
local function write_marks()
  if next(marks) == nil then return end
  version = call('HINCRBY', P .. 'meta', 'version', 1)
  local args, score = {}, int(version)
  for part in pairs(marks) do
    args[#args + 1] = score
    args[#args + 1] = part
  end
  many('ZADD', P .. 'changed', args)
  if relief then redis.pcall('XADD', P .. 'relief', 'MAXLEN', 1, int(version) .. '-0', 'v', 1) end
  marks, relief = {}, false
end
