-- What several scripts use; it stands before each of them.
--
-- Times are microseconds, TTLs milliseconds. A script returns {1, …} if it
-- changed something, {0, …} if not.
--
-- One that fails half-way is not undone. So it looks at everything before it
-- changes anything, and writes before it deletes: a server out of memory refuses
-- the first write, and any that follow, but would delete.

-- fenced tells whether sessions of an epoch, or of an era, have been ended.
local function fenced(fence, epoch)
	local ended = fence and redis.call('GET', fence)
	return ended and tonumber(ended) > tonumber(epoch)
end

-- tag is what the keys of one bucket begin with.
local function tag(key)
	return string.match(key, '^{[^}]*}')
end

-- find returns fields of a session, after true: false if there is none, or if its
-- company's sessions of its era have been ended.
local function find(key, ...)
	local s = redis.call('HMGET', key, 'c', 'y', ...)
	if not s[1] or fenced(tag(key) .. 'f' .. s[1] .. '/0', s[2] or 0) then
		return false
	end
	return true, unpack(s, 3)
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

-- index_of is the key of the index that a session is in, nil for a decoy's.
local function index_of(key)
	local s = redis.call('HMGET', key, 's', 'c', 'a')
	if s[3] and s[3] ~= '0' then
		return tag(key) .. 'i' .. s[1] .. '/' .. s[2] .. '/' .. s[3]
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

-- make_room ends the oldest sessions of an index beside the one under new, so
-- that no more than most are left that live (0: any number). One that has expired
-- leaves the index, and stays expired, since an ending would not find it. The
-- hashes of both, of which every node is told, are returned behind a 1. Those
-- behind the company's fence go, too; of them all have been told.
local function make_room(index, fence, new, most, now, channel)
	local prefix, gone, others = tag(index) .. 's', {1}, {}
	local crowded = most > 0 and redis.call('ZCARD', index) > most
	-- Where there is room, it is enough to let go of two for each that comes.
	for _, hash in ipairs(redis.call('ZRANGE', index, 0, crowded and -1 or 1)) do
		local s = redis.call('HMGET', prefix .. hash, 'x', 'y')
		local expires = s[1]
		if not expires or fenced(fence, s[2] or 0) then
			redis.call('DEL', prefix .. hash)
			redis.call('ZREM', index, hash)
		elseif tonumber(expires) <= now then
			redis.call('HSET', prefix .. hash, 'x', 0)
			redis.call('ZREM', index, hash)
			redis.call('PUBLISH', channel, 'd' .. hash)
			gone[#gone + 1] = hash
		elseif hash ~= new then
			others[#others + 1] = hash
		end
	end
	for i = 1, crowded and #others + 1 - most or 0 do
		drop(prefix .. others[i], index, others[i], channel)
		gone[#gone + 1] = others[i]
	end
	return gone
end

-- put stores the session s, whose fields are the arguments from first on, and
-- notes it in the index of its state and account; a decoy has none. It returns
-- what a script answers then: which sessions are gone.
local function put(key, index, s, first)
	redis.call('HSET', key, unpack(ARGV, first))
	redis.call('PEXPIRE', key, s.ttl)
	if not index then
		return {1}
	end
	redis.call('ZADD', index, s.created, s.hash)
	keep(index, s.ttl)
	return make_room(index, s.fence, s.hash, tonumber(s.most), tonumber(s.now), s.channel)
end
