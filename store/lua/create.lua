-- KEYS  session; unless it is a decoy: fence, index
-- ARGV  epoch, hash, expires, ttl, stale, field, value, …
if redis.call('EXISTS', KEYS[1]) == 1 or fenced(KEYS[2], ARGV[1]) then
	return {0}
end
put(KEYS[1], KEYS[3], {hash = ARGV[2], expires = ARGV[3], ttl = ARGV[4], stale = ARGV[5]}, 6)
return {1}
