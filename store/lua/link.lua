-- Stores the session of a mailed link and ends the one before it, whose hash
-- the caller has read; if that has changed since, the new one is returned.
--
-- KEYS  session, fence, index, link; the link's session, if there is a link; then counters (see there)
-- ARGV  epoch, hash, expires, ttl, stale, channel, link or nothing, field, value, …; then counters
local add, full = counters()
if full then
	return full
end
if redis.call('EXISTS', KEYS[1]) == 1 or fenced(KEYS[2], ARGV[1]) then
	return {0}
end
local link = redis.call('GET', KEYS[4]) or ''
if link ~= ARGV[7] then
	return {0, link}
end
put(KEYS[1], KEYS[3], {hash = ARGV[2], expires = ARGV[3], ttl = ARGV[4], stale = ARGV[5]}, 8)
add()
redis.call('SET', KEYS[4], ARGV[2], 'PX', ARGV[4])
if KEYS[5] then
	drop(KEYS[5], KEYS[3], link, ARGV[6])
end
return {1}
