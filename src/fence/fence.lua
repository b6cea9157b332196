-- Checks a pass against the fence and, if it is good, carries out the caller's commands in the same step.
--
-- KEYS 1: the fence, a hash of token, holder, name.
-- ARGV 1: token, 2: holder, 3: name; then for each command the count of its words, and its words.
-- Replies, tagged:
--   {'done', reply, ...}               one for each command
--   {'refused', token, holder, name}   the row as it is
--   {'failed', index, message}         the server refused command `index` (0: the raise itself); the commands before it
--                                      were carried out, those after it were not
--   {'damaged', what}                  the fence's key is not what this script writes; nothing was done
--   {'malformed', what}                the arguments are not those of the head; nothing was done

local function number(text)
  local value = tonumber(text)
  if value and value >= 1 and value <= 9007199254740991 and value % 1 == 0 then
    return value
  end
end

-- Everything is checked before the first write, because nothing is rolled back here.
local shown = number(ARGV[1])
if not shown or (ARGV[2] or '') == '' or (ARGV[3] or '') == '' then
  return {'malformed', 'the pass'}
end
local commands, at = {}, 4
while at <= #ARGV do
  local words = number(ARGV[at])
  if not words or at + words > #ARGV then
    return {'malformed', 'command ' .. #commands + 1}
  end
  commands[#commands + 1] = {at + 1, at + words}
  at = at + words + 1
end

local row = redis.pcall('HMGET', KEYS[1], 'token', 'holder', 'name')
if row.err then
  return {'damaged', row.err}
end
local stored = 0
if row[1] or row[2] or row[3] then
  stored = number(row[1])
  if not stored or not row[2] or not row[3] then
    return {'damaged', 'a field is missing or no number'}
  end
  local again = shown == stored and row[2] == ARGV[2]
  if row[3] ~= ARGV[3] or not (shown > stored or again) then
    return {'refused', row[1], row[2], row[3]}
  end
end

-- Written for each admitted pass, also for one that is stored already: a fence whose key or fields expire would forget
-- its pass, and HSET removes an expiry of a field as PERSIST does that of the key.
local raised = redis.pcall('HSET', KEYS[1], 'token', ARGV[1], 'holder', ARGV[2], 'name', ARGV[3])
if type(raised) == 'table' and raised.err then
  return {'failed', 0, raised.err}
end
redis.call('PERSIST', KEYS[1])

local replies = {'done'}
for index, command in ipairs(commands) do
  local reply = redis.pcall(unpack(ARGV, command[1], command[2]))
  if type(reply) == 'table' and reply.err then
    return {'failed', index, reply.err}
  end
  replies[index + 1] = reply
end
return replies
