-- This stands before each of the other scripts.

-- value_max is above the bytes of every value that fencegate writes: metadata of 4096 bytes, three texts of 256 bytes,
-- each byte escaped as six. What is longer is another program's.
local value_max = 32768

-- lease_of(value) → the table of a value that fencegate has written; nil for no value, and for that of another program.
-- A reservation has no fencing_token. Nothing is encoded again: Lua would round large numbers.
local function lease_of(value)
  if not value or #value > value_max then
    return nil
  end
  local ok, lease = pcall(cjson.decode, value)
  if ok and type(lease) == 'table' and lease.fencegate then
    return lease
  end
end

-- shown(value) → the value, for the caller; of a long one only its beginning: it is another program's.
local function shown(value)
  return value and #value > value_max and string.sub(value, 1, 64) or value
end

-- now_ms() → the time by this server's clock, in ms.
local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- publish(channel, lock) wakes the waiters of all gateways. A user without the right to the channel is no error: waiters
-- poll, too.
local function publish(channel, lock)
  redis.pcall('PUBLISH', channel, lock)
end
