-- KEYS  session; unless it is a decoy: fence, index; then counters (see there)
-- ARGV  epoch, hash, created, ttl, most, now, channel, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
if redis.call('EXISTS', KEYS[1]) == 1 or fenced(KEYS[2], ARGV[1]) then
	return {0}
end
local gone = put(KEYS[1], KEYS[3],
	{hash = ARGV[2], created = ARGV[3], ttl = ARGV[4], most = ARGV[5], now = ARGV[6], channel = ARGV[7]}, 8)
add()
return gone
