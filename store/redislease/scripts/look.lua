-- look: KEYS[1] is the key of a lock → {now_ms, left_ms, value}; left_ms is -2 and there is no value if the key is free,
-- -1 if it never expires. Errors: WRONGTYPE.
return {now_ms(), redis.call('PTTL', KEYS[1]), shown(redis.call('GET', KEYS[1]))}
