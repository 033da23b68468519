-- KEYS  session; unless it is a decoy: fence, index; then counters (see there)
-- ARGV  epoch, hash, expires, ttl, stale, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
if redis.call('EXISTS', KEYS[1]) == 1 or fenced(KEYS[2], ARGV[1]) then
	return {0}
end
put(KEYS[1], KEYS[3], {hash = ARGV[2], expires = ARGV[3], ttl = ARGV[4], stale = ARGV[5]}, 6)
add()
return {1}
