-- The trace of the request that caused the event (W3C Trace Context); empty for none.
ALTER TABLE outbox ADD COLUMN traceparent text NOT NULL DEFAULT '';
