-- KEYS  session
-- ARGV  hash, channel
if redis.call('EXISTS', KEYS[1]) == 0 then
	return {0}
end
drop(KEYS[1], index_of(KEYS[1]), ARGV[1], ARGV[2])
return {1}
