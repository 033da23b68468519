-- KEYS  session
local code = redis.call('HMGET', KEYS[1], 'k', 'p', 't')
if not code[1] then
	return {0}
end
redis.call('HDEL', KEYS[1], 'k', 'p', 't')
return {1, code[1], code[2], code[3]}
