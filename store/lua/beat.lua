-- Tells a node that it is heard. It writes, so that a server which takes no
-- writes tells nothing; and it tells what the data are known by, which is lost
-- with them.
--
-- KEYS  the data's name
-- ARGV  a name for data without one, its ttl, the node's channel, what to tell
local name = redis.call('GET', KEYS[1]) or ARGV[1]
redis.call('SET', KEYS[1], name, 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4] .. name)
return {1}
