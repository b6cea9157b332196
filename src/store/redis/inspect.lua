-- Who has these names. Changes nothing.
--
-- KEYS   lease hashes, at most 256
-- ARGV   none
-- Reply  an answer for each key, in order:
--          {'held', ms left, {field, value, ...}}      the hash as it stands; -1 ms left: it has no expiry
--          {'free'}
--          {'failed', message}                         the key is somebody else's
--        an error MASTERDOWN for all of them: this server is a replica that has lost its master

local answers = {}
for i, lease in ipairs(KEYS) do
  local fields = redis.pcall('HGETALL', lease)
  if fields.err then
    local refusal = string.match(fields.err, 'MASTERDOWN.*')
    if refusal then return redis.error_reply(refusal) end
    answers[i] = {'failed', fields.err}
  elseif #fields == 0 then answers[i] = {'free'}
  else answers[i] = {'held', redis.call('PTTL', lease), fields} end
end
return answers
