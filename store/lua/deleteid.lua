-- Ends the session of an account with an ID, if it has not expired, and returns its
-- hash and fields.
--
-- KEYS  index of each state
-- ARGV  ID, now, channel
local prefix = tag(KEYS[1]) .. 's'
for _, index in ipairs(KEYS) do
	for _, hash in ipairs(redis.call('ZRANGE', index, 0, -1)) do
		local found, id, expires = find(prefix .. hash, 'i', 'x')
		if found and id == ARGV[1] and tonumber(expires) > tonumber(ARGV[2]) then
			local fields = redis.call('HGETALL', prefix .. hash)
			drop(prefix .. hash, index, hash, ARGV[3])
			return {1, hash, fields}
		end
	end
end
return {0}
