-- mark: KEYS[1] is the key of the server's marker, ARGV[1] the ms for which a restarted server does not vote
-- → {'marked', the ms for which this server still does not}.
--
-- The marker is "run_id since_ms". A server has another run_id after each start, and no marker if it has lost its data.
-- In both cases, and if the clock was set back, the time begins anew.
local now = now_ms()
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local marked, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+) (%d+)$')
if marked ~= run_id or tonumber(since) > now then
  since = now
  redis.call('SET', KEYS[1], string.format('%s %.0f', run_id, now))
end
return {'marked', math.max(0, tonumber(since) + tonumber(ARGV[1]) - now)}
