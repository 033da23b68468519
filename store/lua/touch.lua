-- KEYS  session
-- ARGV  now, expires, how long to keep it beyond
local s = redis.call('HMGET', KEYS[1], 'x', 'n')
local now = tonumber(ARGV[1])
if not s[1] or tonumber(s[1]) <= now then
	return {0}
end
local expires = math.min(tonumber(ARGV[2]), tonumber(s[2]))
if expires > tonumber(s[1]) then
	local ttl = math.ceil((expires - now) / 1000) + tonumber(ARGV[3])
	redis.call('HSET', KEYS[1], 'x', string.format('%.0f', expires))
	keep(KEYS[1], ttl)
	local index = index_of(KEYS[1])
	if index then
		keep(index, ttl)
	end
end
return {1}
