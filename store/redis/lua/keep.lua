-- KEYS  answer
-- ARGV  holder, until, ttl, now, the answer (empty for none yet)
local kept = redis.call('HMGET', KEYS[1], 'h', 'u', 'a')
if kept[1] ~= ARGV[1] or tonumber(kept[2]) <= tonumber(ARGV[4]) or kept[3] then
	return {0}
end
if tonumber(ARGV[3]) <= 0 then
	redis.call('DEL', KEYS[1])
	return {1}
end
redis.call('HSET', KEYS[1], 'u', ARGV[2])
if ARGV[5] ~= '' then
	redis.call('HSET', KEYS[1], 'a', ARGV[5])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1}
