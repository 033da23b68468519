-- KEYS  session
-- ARGV  hash, channel
if not find(KEYS[1]) then
	return {0}
end
drop(KEYS[1], index_of(KEYS[1]), ARGV[1], ARGV[2])
return {1}
