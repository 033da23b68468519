-- Adds to each counter, or to none if one is at its limit: then it returns
-- which, and until when.
--
-- KEYS  counter, …
-- ARGV  now, how long to keep them beyond, 1 to add or 0 to look, limit, window, …
local now, add = tonumber(ARGV[1]), tonumber(ARGV[3])
local counts, ends = {}, {} -- by key, since one counter may be there twice
for i, key in ipairs(KEYS) do
	if not counts[key] then
		local c = redis.call('HMGET', key, 'n', 'u')
		counts[key], ends[key] = tonumber(c[1] or 0), tonumber(c[2] or 0)
		if ends[key] <= now then
			counts[key], ends[key] = 0, now + tonumber(ARGV[2 * i + 3])
		end
	end
	if counts[key] >= tonumber(ARGV[2 * i + 2]) then
		return {0, i, ends[key]}
	end
	counts[key] = counts[key] + add
end
if add == 0 then
	return {0}
end
for key, count in pairs(counts) do
	redis.call('HSET', key, 'n', count, 'u', string.format('%.0f', ends[key]))
	redis.call('PEXPIRE', key, math.ceil((ends[key] - now) / 1000) + tonumber(ARGV[2]))
end
return {1}
