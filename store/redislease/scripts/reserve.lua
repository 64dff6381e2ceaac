-- reserve: KEYS[1] is the key of a lock; KEYS[2] that of the server's marker, if the restart rule holds.
-- ARGV: the value of the reservation, its ttl_ms, the ms for which a restarted server does not vote.
-- → {'reserved'}, also if the key has this very reservation: the client of a Cluster sends a command again when its answer
-- is lost; {'held', now_ms, left_ms, value} with what the key has; or {'restarted', left_ms}: this server was started,
-- flushed, or had its clock set back, less than that time ago, or mark has not run since (see mark.lua). It may have lost
-- the key of a lease that still runs. Errors: WRONGTYPE, OOM, READONLY.
--
-- Invariant: a key that exists is not changed, whoever wrote it.
local now = now_ms()
if KEYS[2] then
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local marked, since = string.match(redis.call('GET', KEYS[2]) or '', '^(%x+) (%d+)$')
  if marked ~= run_id or tonumber(since) > now then
    return {'restarted', tonumber(ARGV[3])}
  end
  local left = tonumber(since) + tonumber(ARGV[3]) - now
  if left > 0 then
    return {'restarted', left}
  end
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {'reserved'}
end
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then
  return {'reserved'}
end
return {'held', now, redis.call('PTTL', KEYS[1]), shown(value)}
