-- Returns the fields of a session, all of them, and takes its code away if the
-- session is as it must be and no counter is full.
--
-- KEYS  session; then counters (see there), to look at
-- ARGV  now, company, state, 1 if the code may be taken; then counters
local add, full = counters()
local fields = redis.call('HGETALL', KEYS[1])
local s = redis.call('HMGET', KEYS[1], 'c', 's', 'x', 'k')
if s[1] ~= ARGV[2] or s[2] ~= ARGV[3] or tonumber(s[3]) <= tonumber(ARGV[1]) then
	return {0, fields}
end
if full then
	return {0, fields, full[2], full[3]}
end
if not s[4] or ARGV[4] ~= '1' then
	return {0, fields}
end
redis.call('HDEL', KEYS[1], 'k', 'p', 't')
return {1, fields}
