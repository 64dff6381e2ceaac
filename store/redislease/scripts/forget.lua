-- forget: KEYS[1] is the key of a lock, ARGV: the channel, the lock → {'deleted'}: nothing is at the key any more, whoever
-- had written it. It is for an administrator's break, after the database has ended the lease. Errors: READONLY.
redis.call('DEL', KEYS[1])
publish(ARGV[1], ARGV[2])
return {'deleted'}
