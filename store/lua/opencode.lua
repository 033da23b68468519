-- KEYS  session
-- ARGV  now, state
local s = redis.call('HMGET', KEYS[1], 's', 'x')
if s[1] ~= ARGV[2] or tonumber(s[2]) <= tonumber(ARGV[1]) then
	return {0}
end
local number = redis.call('HINCRBY', KEYS[1], 'r', 1)
redis.call('HDEL', KEYS[1], 'k', 'p', 't')
return {1, number}
