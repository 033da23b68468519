-- Raises the fence and ends the sessions below it, but for one of the epoch just
-- before, which goes on in the new one. An index holds no more of them
-- than an account may have, so this takes milliseconds at most.
--
-- KEYS  fence, index of each state
-- ARGV  epoch, ttl of the fence, channel, what to tell, hash of the session to keep ('' for none),
--       the state that it must be in
local prefix = tag(KEYS[1]) .. 's'
for i = 2, #KEYS do
	if ARGV[5] ~= '' and redis.call('ZSCORE', KEYS[i], ARGV[5]) then
		local kept = redis.call('HMGET', prefix .. ARGV[5], 'e', 's')
		if kept[2] == ARGV[6] and tonumber(kept[1]) == tonumber(ARGV[1]) - 1 then
			redis.call('HSET', prefix .. ARGV[5], 'e', ARGV[1])
		end
	end
end
if not fenced(KEYS[1], ARGV[1]) then
	redis.call('SET', KEYS[1], ARGV[1])
end
keep(KEYS[1], ARGV[2])
for i = 2, #KEYS do
	for _, hash in ipairs(redis.call('ZRANGE', KEYS[i], 0, -1)) do
		local epoch = redis.call('HGET', prefix .. hash, 'e')
		if not epoch or tonumber(epoch) < tonumber(ARGV[1]) then
			redis.call('DEL', prefix .. hash)
			redis.call('ZREM', KEYS[i], hash)
		end
	end
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return {1}
