-- Raises an account's revocation marker and ends the sessions of earlier generations,
-- except one of the generation just before, which is moved to the new one. For every
-- other session that has not expired, a note is kept. An account has a hundred sessions by
-- default, with which this takes milliseconds.
--
-- KEYS  marker, index of each state
-- ARGV  generation, TTL of the marker, channel, message, hash of the session to keep ('' for none),
--       the state that it must have, now

-- note keeps those fields of a session that Revoked returns, for as long as the session
-- would have been kept.
local function note(session, key)
	local s = redis.call('HMGET', session, 'c', 'a', 'e', 's', 'x', 'y')
	redis.call('HSET', key, 'c', s[1], 'a', s[2], 'e', s[3], 's', s[4], 'x', s[5], 'y', s[6] or 0, 'b', 0, 'n', 0)
	redis.call('PEXPIRE', key, redis.call('PTTL', session))
end

despite_full(KEYS[1])
local prefix = tag(KEYS[1]) .. 's'
for i = 2, #KEYS do
	if ARGV[5] ~= '' and redis.call('ZSCORE', KEYS[i], ARGV[5]) then
		local kept = redis.call('HMGET', prefix .. ARGV[5], 'e', 's')
		if kept[2] == ARGV[6] and tonumber(kept[1]) == tonumber(ARGV[1]) - 1 then
			redis.call('HSET', prefix .. ARGV[5], 'e', ARGV[1])
		end
	end
end
if not revoked(KEYS[1], ARGV[1]) then
	redis.call('SET', KEYS[1], ARGV[1])
end
keep(KEYS[1], ARGV[2])
for i = 2, #KEYS do
	for _, hash in ipairs(redis.call('ZRANGE', KEYS[i], 0, -1)) do
		local generation, expires = unpack(redis.call('HMGET', prefix .. hash, 'e', 'x'))
		if not generation or tonumber(generation) < tonumber(ARGV[1]) then
			if generation and tonumber(expires) > tonumber(ARGV[7]) then
				note(prefix .. hash, tag(KEYS[1]) .. 'r' .. hash)
			end
			redis.call('DEL', prefix .. hash)
			redis.call('ZREM', KEYS[i], hash)
		end
	end
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return {1}
