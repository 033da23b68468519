-- Replaces the profile of a session. A revocation that spares the session is done only after
-- that, so a full server must do it.
--
-- KEYS  session
-- ARGV  now, state that it must have, profile that it must have, hash, channel, field, value, …
local found, state, expires = find(KEYS[1], 's', 'x')
if not found or state ~= ARGV[2] or tonumber(expires) <= tonumber(ARGV[1]) then
	return {0}
end
local stored, pieces = profile(KEYS[1])
if stored ~= ARGV[3] then
	return {0}
end
despite_full(KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 6))
for i = (#ARGV - 5) / 2, pieces - 1 do
	redis.call('HDEL', KEYS[1], 'f' .. i)
end
redis.call('PUBLISH', ARGV[5], 'd' .. ARGV[4])
return {1}
