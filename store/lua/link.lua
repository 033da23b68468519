-- Stores the session of a mailed link and ends the one of the link before.
--
-- KEYS  session, company's marker, account's marker, index, link; then counters (see there)
-- ARGV  generation, company generation, hash, created, ttl, most, now, channel, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
if redis.call('EXISTS', KEYS[1]) == 1 or revoked(KEYS[2], ARGV[2]) or revoked(KEYS[3], ARGV[1]) then
	return {0}
end
local before = redis.call('GET', KEYS[5])
put(KEYS[1], KEYS[4], {marker = KEYS[2], hash = ARGV[3], created = ARGV[4], ttl = ARGV[5],
	most = ARGV[6], now = ARGV[7], channel = ARGV[8]}, 9)
add()
redis.call('SET', KEYS[5], ARGV[3], 'PX', ARGV[5])
if before then
	drop(tag(KEYS[1]) .. 's' .. before, KEYS[4], before, ARGV[8])
end
return {1}
