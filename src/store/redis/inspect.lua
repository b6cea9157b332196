-- Returns the holders of these names. Changes nothing.
--
-- KEYS   lease and queue of each name, at most 128 names
-- ARGV   none
-- Reply  an answer for each name, in order:
--          {'held', ms left, value, clients in the queue}        the value of the lease; -1 ms left: it has no expiry;
--                          -1 clients: the queue cannot be read
--          'free'
--          {'failed', message}             the key belongs to another program
--        an error MASTERDOWN for all of them: this server is a replica that has lost its master

local answers = {}
for i = 1, #KEYS / 2 do
  local lease, queue = KEYS[2 * i - 1], KEYS[2 * i]
  local value = redis.pcall('GET', lease)
  if not value then answers[i] = 'free'
  elseif type(value) == 'table' then
    local refusal = string.match(value.err, 'MASTERDOWN.*')
    if refusal then return redis.error_reply(refusal) end
    answers[i] = {'failed', value.err}
  elseif not is_lease(value) then answers[i] = {'failed', FOREIGN}
  else
    local waiting = redis.pcall('ZCARD', queue)
    answers[i] = {'held', call('PTTL', lease), value, type(waiting) == 'number' and waiting or -1}
  end
end
return answers
