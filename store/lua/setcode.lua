-- KEYS  session
-- ARGV  number, field, value, …
local s = redis.call('HMGET', KEYS[1], 's', 'r')
if not s[1] or tonumber(s[2] or 0) ~= tonumber(ARGV[1]) then
	return {0}
end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('HDEL', KEYS[1], 'o')
return {1}
