-- Marks a session as expired if it has expired. It is kept as long as before.
--
-- KEYS  session
-- ARGV  now, hash, channel
local found, expires = find(KEYS[1], 'x')
if not found or tonumber(expires) == 0 or tonumber(expires) > tonumber(ARGV[1]) then
	return {0}
end
despite_full(KEYS[1])
redis.call('HSET', KEYS[1], 'x', 0)
redis.call('PUBLISH', ARGV[3], 'd' .. ARGV[2])
return {1}
