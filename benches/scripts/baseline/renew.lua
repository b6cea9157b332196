-- Extends each lease of a batch to its full ttl, if its holder still has it. Never creates one.
--
-- KEYS   lease hashes, at most 256
-- ARGV   holder and ttl in ms for each key, in the order of the keys
-- Reply  {'renewed', server's seconds, microseconds past them, outcomes, errors}
--          outcomes   one letter for each key: y renewed   n refused   e evicted   x failed, nothing was changed
--          errors     a message for each x, in order
--        {'invalid', 'arguments', count}      nothing was changed
--
-- Only commands that a full server accepts. One bad key fails alone, hence pcall. TIME comes last, because Redis 6.2 may
-- be set to refuse writes after it.

local count = #KEYS
if #ARGV ~= 2 * count then return {'invalid', 'arguments', tostring(#ARGV)} end
local find, pcall = string.find, redis.pcall
local outcomes, errors = {}, {}
-- The last ttl that was found in order: mostly a batch has only one.
local checked

for i = 1, count do
  local lease, holder, ttl = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  local outcome, failure
  if ttl ~= checked and (#ttl > 15 or not find(ttl, '^[1-9]%d*$')) then
    failure = 'INVALID ttl=' .. ttl
  else
    checked = ttl
    local found = pcall('HGET', lease, holder)
    if found == '1' then
      local extended = pcall('PEXPIRE', lease, ttl)
      if extended == 1 then outcome = 'y'
      elseif extended == 0 then outcome = 'n'
      else failure = extended.err end
    elseif found == 'evicted' then
      outcome = 'e'
    elseif type(found) == 'table' then
      failure = found.err
    else
      outcome = 'n'
    end
  end
  if failure then
    errors[#errors + 1] = failure
    outcome = 'x'
  end
  outcomes[i] = outcome
end

local time = redis.call('TIME')
return {'renewed', time[1], time[2], table.concat(outcomes), errors}
