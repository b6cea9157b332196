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

for i = 1, count do
  local lease, holder, ttl = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  local outcome, failure
  if #ttl > 15 or not find(ttl, '^[1-9]%d*$') then
    failure = 'INVALID ttl=' .. ttl
  elseif not find(holder, '-', 1, true) then
    failure = 'INVALID holder=' .. holder
  else
    local found = pcall('HMGET', lease, holder, 'evicted')
    if found.err then
      failure = found.err
    elseif not found[1] then
      outcome = 'n'
    elseif found[2] then
      outcome = 'e'
    else
      local extended = pcall('PEXPIRE', lease, ttl)
      if extended == 1 then outcome = 'y'
      elseif extended == 0 then outcome = 'n'
      else failure = extended.err end
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
