-- Sends a heartbeat to a node. The script writes, so that a server that accepts no
-- writes sends none. The heartbeat has the name of the data, which is lost with them.
--
-- KEYS  name of the data
-- ARGV  name for data without one, its TTL, channel of the node, start of the message
local name = redis.call('GET', KEYS[1]) or ARGV[1]
redis.call('SET', KEYS[1], name, 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4] .. name)
return {1}
