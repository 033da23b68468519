-- KEYS  old session, next; unless they are a decoy's: fence, next's index; then counters (see there)
-- ARGV  now, from, old hash, channel, epoch, hash, created, ttl, most, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
local old = redis.call('HMGET', KEYS[1], 's', 'x')
if old[1] ~= ARGV[2] or tonumber(old[2]) <= tonumber(ARGV[1]) then
	return {0}
end
if redis.call('EXISTS', KEYS[2]) == 1 or fenced(KEYS[3], ARGV[5]) then
	return {0}
end
local gone = put(KEYS[2], KEYS[4],
	{hash = ARGV[6], created = ARGV[7], ttl = ARGV[8], most = ARGV[9], now = ARGV[1], channel = ARGV[4]}, 10)
add()
drop(KEYS[1], index_of(KEYS[1]), ARGV[3], ARGV[4])
return gone
