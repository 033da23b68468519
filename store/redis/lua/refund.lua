-- Takes one from each counter whose window is open.
--
-- KEYS  counters
-- ARGV  now
for _, key in ipairs(KEYS) do
	local count, ends = unpack(redis.call('HMGET', key, 'n', 'u'))
	if count and tonumber(ends) > tonumber(ARGV[1]) then
		if tonumber(count) > 1 then
			redis.call('HINCRBY', key, 'n', -1)
		else
			redis.call('DEL', key)
		end
	end
end
return {1}
