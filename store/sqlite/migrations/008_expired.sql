-- When the sessions expired of which it has been noted that they did.
CREATE INDEX sessions_expired ON sessions (ends) WHERE expires = 0;
