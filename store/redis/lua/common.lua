-- Functions of several scripts. They are prepended to each script.
--
-- Times are microseconds, TTLs milliseconds. A script returns {1, …} if it
-- changed something, and {0, …} if not.
--
-- Redis does not undo a script that fails half-way. So each script checks before its first
-- change. A server that is out of memory refuses that one if it needs memory, and nothing
-- after it: a script that stores begins with a write, and one that must work all the same
-- with a deletion (despite_full).

-- revoked reports whether a revocation marker ends the sessions of a generation.
local function revoked(marker, generation)
	local ended = marker and redis.call('GET', marker)
	return ended and tonumber(ended) > tonumber(generation)
end

-- despite_full lets a script that revokes or marks write, even if the server is out of
-- memory. It deletes a key that does not exist.
local function despite_full(key)
	redis.call('DEL', key .. '?')
end

-- tag returns the prefix of all keys of the key's bucket.
local function tag(key)
	return string.match(key, '^{[^}]*}')
end

-- find returns true and the fields of a session. It returns false if there is no such
-- session, or if the company's generation of the session has been revoked.
local function find(key, ...)
	local s = redis.call('HMGET', key, 'c', 'y', ...)
	if not s[1] or revoked(tag(key) .. 'f' .. s[1] .. '/0', s[2] or 0) then
		return false
	end
	return true, unpack(s, 3)
end

-- profile returns the profile of a session, which is stored in pieces f, f1, f2 and so on, and
-- how many these are.
local function profile(key)
	local text, pieces = '', 0
	local piece = redis.call('HGET', key, 'f')
	while piece do
		text, pieces = text .. piece, pieces + 1
		piece = redis.call('HGET', key, 'f' .. pieces)
	end
	return text, pieces
end

-- keep makes a key live for at least ttl from now.
local function keep(key, ttl)
	if redis.call('PTTL', key) < tonumber(ttl) then
		redis.call('PEXPIRE', key, ttl)
	end
end

-- counters removes counters from the ends of KEYS and ARGV, so that the script's own
-- keys and arguments remain:
--
--   KEYS  …, counter, …
--   ARGV  …, limit, window, 1 to add or 0 to only look, …, now, how long to keep them after their window, how many
--
-- It returns a function that adds to the counters. If one is at its limit, it returns
-- nil and the script's answer: {0, the counter's number, when its window ends}.
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
	local counts, ends, added = {}, {}, {} -- by key, because a counter can occur twice
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

-- index_of returns the key of a session's index, and nil for a decoy.
local function index_of(key)
	local s = redis.call('HMGET', key, 's', 'c', 'a')
	if s[3] and s[3] ~= '0' then
		return tag(key) .. 'i' .. s[1] .. '/' .. s[2] .. '/' .. s[3]
	end
end

-- drop ends the session with a hash and tells every node.
local function drop(key, index, hash, channel)
	redis.call('DEL', key)
	if index then
		redis.call('ZREM', index, hash)
	end
	redis.call('PUBLISH', channel, 'd' .. hash)
end

-- make_room ends the oldest sessions of an index, except the one with the hash new, so
-- that at most `most` of them are left that have not expired (0: any number). Expired
-- sessions leave the index. They are marked as expired, because a revocation would no
-- longer find them. Every node is told of both kinds. make_room returns
-- {1, hash, id, hash, id, …}; the id of an expired session is ''. Sessions that the
-- company's marker revokes are deleted, too; every node has been told of these already.
local function make_room(index, marker, new, most, now, channel)
	local prefix, gone, others = tag(index) .. 's', {1}, {}
	local over_limit = most > 0 and redis.call('ZCARD', index) > most
	-- If there is room, it is enough to check the two oldest for each new session.
	for _, hash in ipairs(redis.call('ZRANGE', index, 0, over_limit and -1 or 1)) do
		local s = redis.call('HMGET', prefix .. hash, 'x', 'y', 'i')
		local expires = s[1]
		if not expires or revoked(marker, s[2] or 0) then
			redis.call('DEL', prefix .. hash)
			redis.call('ZREM', index, hash)
		elseif tonumber(expires) <= now then
			redis.call('HSET', prefix .. hash, 'x', 0)
			redis.call('ZREM', index, hash)
			redis.call('PUBLISH', channel, 'd' .. hash)
			gone[#gone + 1], gone[#gone + 2] = hash, ''
		elseif hash ~= new then
			others[#others + 1] = {hash = hash, id = s[3] or ''}
		end
	end
	for i = 1, over_limit and #others + 1 - most or 0 do
		local hash = others[i].hash
		drop(prefix .. hash, index, hash, channel)
		gone[#gone + 1], gone[#gone + 2] = hash, others[i].id
	end
	return gone
end

-- put stores the session s, whose fields are the arguments from number first on, and
-- adds it to the index of its state and account. A decoy has no index. It returns the
-- script's answer, which is that of make_room.
local function put(key, index, s, first)
	redis.call('HSET', key, unpack(ARGV, first))
	redis.call('PEXPIRE', key, s.ttl)
	if not index then
		return {1}
	end
	redis.call('ZADD', index, s.created, s.hash)
	keep(index, s.ttl)
	return make_room(index, s.marker, s.hash, tonumber(s.most), tonumber(s.now), s.channel)
end
