-- Extends each lease of a batch to its full ttl, if its holder still has it. Never creates a lease.
--
-- KEYS   leases, at most 256
-- ARGV   holder and ttl in ms for each key, in the order of the keys
-- Reply  {'renewed', server's seconds, microseconds past them, outcomes, errors}
--          outcomes   one letter for each key: y renewed   n refused   e evicted   x failed, nothing was changed
--          errors     a message for each x, in order
--        {'invalid', 'arguments', count}      nothing was changed
--        an error READONLY or MASTERDOWN for the whole batch: this server is a replica, nothing was changed
--
-- Only commands that a full server accepts. One bad key fails alone, hence pcall. TIME comes last, because Redis 6.2
-- may be set to refuse writes after it.

local count = #KEYS
if #ARGV ~= 2 * count then return {'invalid', 'arguments', tostring(#ARGV)} end
local pcall = redis.pcall

-- The error of a replica. It concerns the server, not the key: the caller has to ask another server.
local function of_replica(failure)
  return string.match(failure, 'READONLY.*') or string.match(failure, 'MASTERDOWN.*')
end

local outcomes, errors = {}, {}
-- The last ttl that was checked: most batches have only one.
local checked

-- Returns the outcome for a lease that this holder does not have, and the error if it failed.
local function refuse(lease, holder)
  local value = pcall('GET', lease)
  if type(value) == 'table' then return 'x', value.err end
  if value then
    if not is_lease(value) then return 'x', FOREIGN end
    if sub(value, 1, 57) == 'evicted ' .. holder then return 'e' end
  end
  -- A replica may not have received this lease. It refuses even a write that changes nothing, as this one does: on a
  -- master the key is not a hash.
  local proof = pcall('HDEL', lease, holder)
  if type(proof) == 'table' and of_replica(proof.err) then return 'x', proof.err end
  return 'n'
end

for i = 1, count do
  local lease, holder, ttl = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  local outcome, failure
  if ttl ~= checked and (#ttl > 15 or not find(ttl, '^[1-9]%d*$')) then
    failure = 'INVALID ttl=' .. ttl
  else
    checked = ttl
    local found = pcall('GETRANGE', lease, '0', '48')
    if found == holder and #holder == 49 then
      local extended = pcall('PEXPIRE', lease, ttl)
      if extended == 1 then outcome = 'y'
      elseif extended == 0 then outcome = 'n'
      else failure = extended.err end
    else
      outcome, failure = refuse(lease, holder)
    end
  end
  if failure then
    local refusal = of_replica(failure)
    if refusal then return redis.error_reply(refusal) end
    errors[#errors + 1] = failure
    outcome = 'x'
  end
  outcomes[i] = outcome
end

local time = call('TIME')
return {'renewed', time[1], time[2], table.concat(outcomes), errors}
