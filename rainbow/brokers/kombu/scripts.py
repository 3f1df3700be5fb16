"""Lua scripts for queues in Redis: each does in one step what a killed process must not leave half done."""

from __future__ import annotations

#: Move messages from the head of a queue to the unacknowledged ones in one step: between the two of kombu's own
#: a killed process loses them. KEYS: unacked, its index, the place for what cannot be read, the queue's lists by
#: priority. ARGV: seconds now, how many, whether only expired ones.
TAKE = """
local out = {}
for i = 4, #KEYS do
  while #out < tonumber(ARGV[2]) do
    local item = redis.call('LINDEX', KEYS[i], -1)
    if not item then break end
    local ok, m = pcall(cjson.decode, item)
    if ok and type(m) == 'table' and type(m.properties) == 'table' and m.properties.delivery_tag then
      if ARGV[3] == '1' then
        local own = m.properties.rainbow
        if type(own) ~= 'table' or type(own.expires) ~= 'number' or own.expires > tonumber(ARGV[1]) then break end
      end
      redis.call('RPOP', KEYS[i])
      local d = m.properties.delivery_info
      redis.call('HSET', KEYS[1], m.properties.delivery_tag,
        '[' .. item .. ',' .. cjson.encode(d.exchange) .. ',' .. cjson.encode(d.routing_key) .. ']')
      redis.call('ZADD', KEYS[2], ARGV[1], m.properties.delivery_tag)
      out[#out + 1] = item
    else
      redis.call('RPOP', KEYS[i])
      redis.call('LPUSH', KEYS[3], item)
    end
  end
end
return out
"""

#: Put a held message back to the head of its queue, if it is still held. KEYS: unacked, its index, the queue's
#: list. ARGV: the tag, the payload.
GIVE_BACK = """
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  redis.call('RPUSH', KEYS[3], ARGV[2])
end
"""

#: Keep what is still held from being given to others. KEYS: the index. ARGV: seconds now, tags.
KEEP = """
for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], 'XX', ARGV[1], ARGV[i])
end
"""


#: Take the lease of a queue, or renew it. KEYS: the lease. ARGV: the consumer, milliseconds. Returns whether it was
#: taken now, and whether it is ours.
LEASE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0, 0} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {holder and 0 or 1, 1}
"""

#: Give the lease up, if it is ours. KEYS: the lease. ARGV: the consumer.
LEAVE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"
