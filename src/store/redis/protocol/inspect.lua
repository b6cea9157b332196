-- Returns the holder of a name. Changes nothing.
--
-- KEYS   lease, queue
-- ARGV   none
-- Reply  {'held', ms left, value, clients in the queue}          the value of the lease; -1 ms left: it has no expiry;
--                          -1 clients: the queue cannot be read
--        'free'
--        {'failed', message}             the key belongs to another program
--        an error MASTERDOWN: this server is a replica that has lost its master

local lease, queue = KEYS[1], KEYS[2]
local value = redis.pcall('GET', lease)
if not value or type(value) == 'string' and find(value, '^offer %x+$') then return 'free' end
if type(value) == 'table' then
  local refusal = string.match(value.err, 'MASTERDOWN.*')
  if refusal then return redis.error_reply(refusal) end
  return {'failed', value.err}
end
if not is_lease(value) then return {'failed', FOREIGN} end
local waiting = redis.pcall('ZCOUNT', queue, '(0', '+inf')
return {'held', call('PTTL', lease), value, type(waiting) == 'number' and waiting or -1}
