-- KEYS  old session, next, company's marker; unless they are a decoy's: account's marker, next's index; then counters (see there)
-- ARGV  now, from, old hash, channel, generation, company generation, hash, created, ttl, most,
--       profile that an authorized session must have, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
local found, state, expires = find(KEYS[1], 's', 'x')
if not found or state ~= ARGV[2] or tonumber(expires) <= tonumber(ARGV[1]) then
	return {0}
end
if state == 'authorized' and profile(KEYS[1]) ~= ARGV[11] then
	return {0}
end
if redis.call('EXISTS', KEYS[2]) == 1 or revoked(KEYS[3], ARGV[6]) or revoked(KEYS[4], ARGV[5]) then
	return {0}
end
local gone = put(KEYS[2], KEYS[5], {marker = KEYS[3], hash = ARGV[7], created = ARGV[8], ttl = ARGV[9],
	most = ARGV[10], now = ARGV[1], channel = ARGV[4]}, 12)
add()
drop(KEYS[1], index_of(KEYS[1]), ARGV[3], ARGV[4])
return gone
