-- Adds to each counter, or to none if one is at its limit.
--
-- KEYS, ARGV  counters (see there)
local add, full = counters()
if full then
	return full
end
add()
return {1}
