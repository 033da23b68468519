-- What several scripts use; it stands before each of them.
--
-- Times are microseconds, TTLs milliseconds. A script returns {1, …} if it
-- changed something, {0, …} if not.
--
-- One that fails half-way is not undone. So it looks at everything before it
-- changes anything, and writes before it deletes: a server out of memory refuses
-- the first write, and any that follow, but would delete.

-- fenced tells whether sessions of an epoch have been ended.
local function fenced(fence, epoch)
	local ended = fence and redis.call('GET', fence)
	return ended and tonumber(ended) > tonumber(epoch)
end

-- keep lets a key live for ttl from now, if it would end earlier.
local function keep(key, ttl)
	if redis.call('PTTL', key) < tonumber(ttl) then
		redis.call('PEXPIRE', key, ttl)
	end
end

-- put stores the session s, whose fields are the arguments from first on, and
-- notes it in the account's index; a decoy has none.
local function put(key, index, s, first)
	redis.call('HSET', key, unpack(ARGV, first))
	redis.call('PEXPIRE', key, s.ttl)
	if index then
		redis.call('ZREMRANGEBYSCORE', index, '-inf', s.stale)
		redis.call('ZADD', index, s.expires, s.hash)
		keep(index, s.ttl)
	end
end

-- drop ends the session under hash and tells every node.
local function drop(key, index, hash, channel)
	redis.call('DEL', key)
	if index then
		redis.call('ZREM', index, hash)
	end
	redis.call('PUBLISH', channel, 'd' .. hash)
end
