-- Who has these names. Changes nothing.
--
-- KEYS   leases, at most 256
-- ARGV   none
-- Reply  an answer for each key, in order:
--          {'held', ms left, value}        the lease as it stands; -1 ms left: it has no expiry
--          'free'
--          {'failed', message}             the key is somebody else's
--        an error MASTERDOWN for all of them: this server is a replica that has lost its master

local answers = {}
for i, lease in ipairs(KEYS) do
  local value = redis.pcall('GET', lease)
  if not value then answers[i] = 'free'
  elseif type(value) == 'table' then
    local refusal = string.match(value.err, 'MASTERDOWN.*')
    if refusal then return redis.error_reply(refusal) end
    answers[i] = {'failed', value.err}
  elseif not is_lease(value) then answers[i] = {'failed', FOREIGN}
  else answers[i] = {'held', call('PTTL', lease), value} end
end
return answers
