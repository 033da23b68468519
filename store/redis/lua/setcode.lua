-- KEYS  session
-- ARGV  number, field, value, …
local found, number = find(KEYS[1], 'r')
if not found or tonumber(number or 0) ~= tonumber(ARGV[1]) then
	return {0}
end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('HDEL', KEYS[1], 'o')
return {1}
