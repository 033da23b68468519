-- Raises the fence and ends the sessions below it, but for one of the epoch just
-- before, which goes on in the new one. A recovery that has a login id becomes a decoy;
-- of any other that lives a short note is kept. An index holds no more of them
-- than an account may have, so this takes milliseconds at most.
--
-- KEYS  fence, index of each state
-- ARGV  epoch, ttl of the fence, channel, what to tell, hash of the session to keep ('' for none),
--       the state that it must be in, now, the state of the recoveries

-- note keeps of a session what Revoked returns, for the microseconds that are left
-- of its life.
local function note(session, revoked, left)
	local s = redis.call('HMGET', session, 'c', 'a', 'e', 's', 'x', 'y')
	redis.call('HSET', revoked, 'c', s[1], 'a', s[2], 'e', s[3], 's', s[4], 'x', s[5], 'y', s[6] or 0, 'b', 0, 'n', 0)
	redis.call('PEXPIRE', revoked, math.ceil(left / 1000))
end

local prefix = tag(KEYS[1]) .. 's'
for i = 2, #KEYS do
	if ARGV[5] ~= '' and redis.call('ZSCORE', KEYS[i], ARGV[5]) then
		local kept = redis.call('HMGET', prefix .. ARGV[5], 'e', 's')
		if kept[2] == ARGV[6] and tonumber(kept[1]) == tonumber(ARGV[1]) - 1 then
			redis.call('HSET', prefix .. ARGV[5], 'e', ARGV[1])
		end
	end
end
if not fenced(KEYS[1], ARGV[1]) then
	redis.call('SET', KEYS[1], ARGV[1])
end
keep(KEYS[1], ARGV[2])
for i = 2, #KEYS do
	for _, hash in ipairs(redis.call('ZRANGE', KEYS[i], 0, -1)) do
		local epoch, expires, state, login_id = unpack(redis.call('HMGET', prefix .. hash, 'e', 'x', 's', 'l'))
		if not epoch or tonumber(epoch) < tonumber(ARGV[1]) then
			if login_id and state == ARGV[8] then
				redis.call('HSET', prefix .. hash, 'a', 0, 'e', 0, 'p', '')
				redis.call('HDEL', prefix .. hash, 'm')
			else
				if epoch and tonumber(expires) > tonumber(ARGV[7]) then
					note(prefix .. hash, tag(KEYS[1]) .. 'r' .. hash, tonumber(expires) - tonumber(ARGV[7]))
				end
				redis.call('DEL', prefix .. hash)
			end
			redis.call('ZREM', KEYS[i], hash)
		end
	end
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return {1}
