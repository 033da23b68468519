-- Gives a name to a holder, and returns {1}. If it has one already, returns {0, answer}, or {0}
-- if there is no answer yet. It works on a full server, because a logout may need it.
--
-- KEYS  answer, then counters (see there)
-- ARGV  holder, until, ttl, now, then as for counters
local add, full = counters()
local kept = redis.call('HMGET', KEYS[1], 'u', 'a')
if kept[1] and tonumber(kept[1]) > tonumber(ARGV[4]) then
	return {0, kept[2] or nil}
end
if full then
	return full
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'h', ARGV[1], 'u', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
add()
return {1}
