-- Returns the fields of a session, none if there is no such. It changes nothing.
--
-- KEYS  session
return find(KEYS[1]) and redis.call('HGETALL', KEYS[1]) or {}
