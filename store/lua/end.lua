-- Raises the fence and ends the sessions below it of those that the caller has
-- read from the index; returns which others the index has.
--
-- KEYS  fence, index, session, …
-- ARGV  epoch, ttl of the fence, channel, what to tell, hash, … (of the sessions)
if not fenced(KEYS[1], ARGV[1]) then
	redis.call('SET', KEYS[1], ARGV[1])
end
keep(KEYS[1], ARGV[2])
local seen = {}
for i = 3, #KEYS do
	local hash = ARGV[i + 2]
	local epoch = redis.call('HGET', KEYS[i], 'e')
	if not epoch or tonumber(epoch) < tonumber(ARGV[1]) then
		redis.call('DEL', KEYS[i])
		redis.call('ZREM', KEYS[2], hash)
	end
	seen[hash] = true
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
local others = {1}
for _, hash in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
	if not seen[hash] then
		others[#others + 1] = hash
	end
end
return others
