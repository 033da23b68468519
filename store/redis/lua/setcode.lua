-- KEYS  session
-- ARGV  now, state, 1 if there may be no code, field, value, …
local found, state, expires, code = find(KEYS[1], 's', 'x', 'k')
if not found or state ~= ARGV[2] or tonumber(expires) <= tonumber(ARGV[1]) or code and ARGV[3] == '1' then
	return {0}
end
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
redis.call('HDEL', KEYS[1], 'o')
return {1}
