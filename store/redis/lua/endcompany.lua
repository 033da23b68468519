-- Raises a company's revocation marker.
--
-- KEYS  marker
-- ARGV  company generation, TTL of the marker, channel, message ('' for none)
despite_full(KEYS[1])
if not revoked(KEYS[1], ARGV[1]) then
	redis.call('SET', KEYS[1], ARGV[1])
end
keep(KEYS[1], ARGV[2])
if ARGV[4] ~= '' then
	redis.call('PUBLISH', ARGV[3], ARGV[4])
end
return {1}
