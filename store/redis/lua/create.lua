-- Stores a session. That of a mailed link ends the one of the link before.
--
-- KEYS  session, company's marker; unless it is a decoy: account's marker, index; for a mailed link: link; then counters (see there)
-- ARGV  generation, company generation, hash, created, ttl, most, now, channel, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
if redis.call('EXISTS', KEYS[1]) == 1 or revoked(KEYS[2], ARGV[2]) or revoked(KEYS[3], ARGV[1]) then
	return {0}
end
local before = KEYS[5] and redis.call('GET', KEYS[5])
local gone = put(KEYS[1], KEYS[4], {marker = KEYS[2], hash = ARGV[3], created = ARGV[4], ttl = ARGV[5],
	most = ARGV[6], now = ARGV[7], channel = ARGV[8]}, 9)
add()
if KEYS[5] then
	redis.call('SET', KEYS[5], ARGV[3], 'PX', ARGV[5])
end
if before then
	drop(tag(KEYS[1]) .. 's' .. before, KEYS[4], before, ARGV[8])
end
return gone
