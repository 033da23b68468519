-- Takes back what a charge at a time has added to counters, if their windows of then are open.
--
-- KEYS  counters
-- ARGV  window of each, the time
local now = tonumber(ARGV[#ARGV])
for i, key in ipairs(KEYS) do
	local count, ends = unpack(redis.call('HMGET', key, 'n', 'u'))
	if count and tonumber(ends) > now and tonumber(ends) <= now + tonumber(ARGV[i]) then
		if tonumber(count) > 1 then
			redis.call('HINCRBY', key, 'n', -1)
		else
			redis.call('DEL', key)
		end
	end
end
return {1}
