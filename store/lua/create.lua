-- KEYS  session, company's marker; unless it is a decoy: account's marker, index; then counters (see there)
-- ARGV  generation, company generation, hash, created, ttl, most, now, channel, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
if redis.call('EXISTS', KEYS[1]) == 1 or revoked(KEYS[2], ARGV[2]) or revoked(KEYS[3], ARGV[1]) then
	return {0}
end
local gone = put(KEYS[1], KEYS[4], {marker = KEYS[2], hash = ARGV[3], created = ARGV[4], ttl = ARGV[5],
	most = ARGV[6], now = ARGV[7], channel = ARGV[8]}, 9)
add()
return gone
