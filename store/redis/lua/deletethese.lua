-- Ends the session of an account with an ID or, if one to keep is given, all others. Spares
-- those that have expired. Returns the hashes and fields of what it ended.
--
-- KEYS  index of each state
-- ARGV  ID, hash of the session to keep or '', now, channel
local ended = {1} -- even if there is none: a repeated call waits for the replicas, too
local prefix = tag(KEYS[1]) .. 's'
for _, index in ipairs(KEYS) do
	for _, hash in ipairs(redis.call('ZRANGE', index, 0, -1)) do
		local found, id, expires = find(prefix .. hash, 'i', 'x')
		local wanted = ARGV[2] ~= '' and hash ~= ARGV[2] or ARGV[2] == '' and id == ARGV[1]
		if found and wanted and tonumber(expires) > tonumber(ARGV[3]) then
			ended[#ended + 1] = hash
			ended[#ended + 1] = redis.call('HGETALL', prefix .. hash)
			drop(prefix .. hash, index, hash, ARGV[4])
		end
	end
end
return ended
