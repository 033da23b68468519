-- KEYS  session; unless it is a decoy: index
-- ARGV  now, expires, how long to keep it beyond, hash
local s = redis.call('HMGET', KEYS[1], 'x', 'n')
local now = tonumber(ARGV[1])
if not s[1] or tonumber(s[1]) <= now then
	return {0}
end
local expires = math.min(tonumber(ARGV[2]), tonumber(s[2]))
if expires > tonumber(s[1]) then
	local text = string.format('%.0f', expires)
	local ttl = math.ceil((expires - now) / 1000) + tonumber(ARGV[3])
	redis.call('HSET', KEYS[1], 'x', text)
	keep(KEYS[1], ttl)
	if KEYS[2] then
		redis.call('ZADD', KEYS[2], text, ARGV[4])
		keep(KEYS[2], ttl)
	end
end
return {1}
