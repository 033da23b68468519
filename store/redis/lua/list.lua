-- Returns the sessions of an account that have not expired: hash, fields, …
--
-- KEYS  index of each state
-- ARGV  now
local found = {0}
local prefix = tag(KEYS[1]) .. 's'
for _, index in ipairs(KEYS) do
	for _, hash in ipairs(redis.call('ZRANGE', index, 0, -1)) do
		local alive, expires = find(prefix .. hash, 'x')
		if alive and tonumber(expires) > tonumber(ARGV[1]) then
			found[#found + 1] = hash
			found[#found + 1] = redis.call('HGETALL', prefix .. hash)
		end
	end
end
return found
