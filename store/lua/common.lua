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

-- counters takes counters off the ends of KEYS and ARGV, so that before them a
-- script finds what is its own:
--
--   KEYS  …, counter, …
--   ARGV  …, limit, window, 1 to add or 0 to look, …, now, how long to keep them beyond, how many
--
-- It returns a function that adds to them or, if one is at its limit, nil and
-- the answer of a script that does nothing then: which, and until when.
local function counters()
	local n = tonumber(table.remove(ARGV))
	local beyond = tonumber(table.remove(ARGV))
	local now = tonumber(table.remove(ARGV))
	local list = {}
	for i = n, 1, -1 do
		local c = {key = table.remove(KEYS)}
		c.add = tonumber(table.remove(ARGV))
		c.window = tonumber(table.remove(ARGV))
		c.limit = tonumber(table.remove(ARGV))
		list[i] = c
	end
	local counts, ends, added = {}, {}, {} -- by key, since one counter may be there twice
	for i, c in ipairs(list) do
		if not counts[c.key] then
			local stored = redis.call('HMGET', c.key, 'n', 'u')
			counts[c.key], ends[c.key] = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
			if ends[c.key] <= now then
				counts[c.key], ends[c.key] = 0, now + c.window
			end
		end
		if counts[c.key] >= c.limit then
			return nil, {0, i, ends[c.key]}
		end
		if c.add == 1 then
			counts[c.key], added[c.key] = counts[c.key] + 1, true
		end
	end
	return function()
		for key in pairs(added) do
			redis.call('HSET', key, 'n', counts[key], 'u', string.format('%.0f', ends[key]))
			redis.call('PEXPIRE', key, math.ceil((ends[key] - now) / 1000) + beyond)
		end
	end
end

-- put stores the session s, whose fields are the arguments from first on, and
-- notes it in the account's index; a decoy has none. Sessions that the index
-- forgets are forgotten themselves: an ending would not find them, should the
-- clock go back.
local function put(key, index, s, first)
	redis.call('HSET', key, unpack(ARGV, first))
	redis.call('PEXPIRE', key, s.ttl)
	if index then
		local prefix = string.sub(key, 1, -1 - #s.hash)
		for _, hash in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', s.stale)) do
			redis.call('DEL', prefix .. hash)
			redis.call('ZREM', index, hash)
		end
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
