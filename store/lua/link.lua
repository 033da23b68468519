-- Stores the session of a mailed link and ends the one before it.
--
-- KEYS  session, fence, index, link; then counters (see there)
-- ARGV  epoch, hash, created, ttl, most, now, channel, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
if redis.call('EXISTS', KEYS[1]) == 1 or fenced(KEYS[2], ARGV[1]) then
	return {0}
end
local before = redis.call('GET', KEYS[4])
put(KEYS[1], KEYS[3], {hash = ARGV[2], created = ARGV[3], ttl = ARGV[4], most = ARGV[5], now = ARGV[6], channel = ARGV[7]}, 8)
add()
redis.call('SET', KEYS[4], ARGV[2], 'PX', ARGV[4])
if before then
	drop(tag(KEYS[1]) .. 's' .. before, KEYS[3], before, ARGV[7])
end
return {1}
