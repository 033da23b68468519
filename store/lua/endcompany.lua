-- Raises a company's fence.
--
-- KEYS  fence
-- ARGV  era, ttl of the fence, channel, what to tell; empty for nothing
if not fenced(KEYS[1], ARGV[1]) then
	redis.call('SET', KEYS[1], ARGV[1])
end
keep(KEYS[1], ARGV[2])
if ARGV[4] ~= '' then
	redis.call('PUBLISH', ARGV[3], ARGV[4])
end
return {1}
