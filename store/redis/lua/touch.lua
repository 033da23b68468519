-- KEYS  session
-- ARGV  now, expires, how long to keep it after it expires
local found, before, ends, used = find(KEYS[1], 'x', 'n', 'v')
local now = tonumber(ARGV[1])
if not found or tonumber(before) <= now then
	return {0}
end
if now > tonumber(used or 0) then
	redis.call('HSET', KEYS[1], 'v', ARGV[1])
end
local expires = math.min(tonumber(ARGV[2]), tonumber(ends))
if expires > tonumber(before) then
	local ttl = math.ceil((expires - now) / 1000) + tonumber(ARGV[3])
	redis.call('HSET', KEYS[1], 'x', string.format('%.0f', expires))
	keep(KEYS[1], ttl)
	local index = index_of(KEYS[1])
	if index then
		keep(index, ttl)
	end
end
return {1}
