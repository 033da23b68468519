-- KEYS  session
-- ARGV  now, state
local found, state, expires = find(KEYS[1], 's', 'x')
if not found or state ~= ARGV[2] or tonumber(expires) <= tonumber(ARGV[1]) then
	return {0}
end
return {1, redis.call('HINCRBY', KEYS[1], 'r', 1)}
