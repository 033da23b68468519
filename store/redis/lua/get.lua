-- Returns the fields of a session, or none if it does not exist. It changes nothing.
--
-- KEYS  session
return find(KEYS[1]) and redis.call('HGETALL', KEYS[1]) or {}
