-- Returns all fields of a session. It deletes the session's code if company and state
-- are right, the session has not expired, and no counter is full.
--
-- KEYS  session; then counters (see there), only to look at
-- ARGV  now, company, state, 1 if the code may be deleted; then counters
local add, full = counters()
local found, company, state, expires, code = find(KEYS[1], 'c', 's', 'x', 'k')
local fields = found and redis.call('HGETALL', KEYS[1]) or {}
if not found or company ~= ARGV[2] or state ~= ARGV[3] or tonumber(expires) <= tonumber(ARGV[1]) then
	return {0, fields}
end
if full then
	return {0, fields, full[2], full[3]}
end
if not code or ARGV[4] ~= '1' then
	return {0, fields}
end
redis.call('HDEL', KEYS[1], 'k', 'p', 't')
return {1, fields}
