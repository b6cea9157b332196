-- Extends each lease of a batch to its full ttl, if its holder still has it by the same grant. Never creates a lease.
--
-- KEYS   leases, at most 256
-- ARGV   a grant for each key, in the order of the keys: '<holder> <token> ', with the space after the token, which is what
--        the value of the lease begins with; then a ttl in ms for each key, in the same order, or one ttl for all of them
-- Reply  {'renewed', server's seconds, microseconds past them, outcomes, errors}
--          outcomes   one letter for each key: y renewed   n refused   e evicted   x failed, nothing was changed
--          errors     a message for each x, in order
--        {'invalid', 'arguments', count}      nothing was changed
--        an error READONLY or MASTERDOWN for the whole batch: this server is a replica, nothing was changed
--
-- Only commands that a full server accepts. One bad key fails alone, hence pcall. TIME comes last, because Redis 6.2
-- may be set to refuse writes after it.

local count = #KEYS
-- The ttl of all, unless each has its own.
local common = #ARGV == count + 1 and ARGV[#ARGV]
if not common and #ARGV ~= 2 * count then return {'invalid', 'arguments', tostring(#ARGV)} end
local pcall = redis.pcall

-- The error of a replica. It concerns the server, not the key: the caller has to ask another server.
local function of_replica(failure)
  return string.match(failure, 'READONLY.*') or string.match(failure, 'MASTERDOWN.*')
end

-- Whether the text is a grant. What follows it in the value of a lease is then the info.
local function is_grant(text)
  return #text > 51 and find(text, '^%x+%-%x+ %d+ $')
end

local outcomes, errors = {}, {}
-- The last ttl that was checked: most batches have only one.
local checked
-- The offset of the last byte of the first grant: most batches have grants of one length.
local last
if count > 0 and is_grant(ARGV[1]) then last = tostring(#ARGV[1] - 1) end

-- Returns the outcome for a lease that does not begin with this grant, as far as the first grant's length tells, and the
-- error if it failed; nothing if the lease is of this grant all the same.
local function refuse(lease, grant)
  local value = pcall('GET', lease)
  if type(value) == 'table' then return 'x', value.err end
  if value then
    if not is_lease(value) then return 'x', FOREIGN end
    if is_grant(grant) then
      if sub(value, 1, #grant) == grant then return end
      if sub(value, 1, 8 + #grant) == 'evicted ' .. grant then return 'e' end
    end
  end
  -- A replica may not have received this lease. It refuses even a write that changes nothing, as this one does: on a
  -- master the key is not a hash.
  local proof = pcall('HDEL', lease, grant)
  if type(proof) == 'table' and of_replica(proof.err) then return 'x', proof.err end
  return 'n'
end

for i = 1, count do
  local lease, grant, ttl = KEYS[i], ARGV[i], common or ARGV[count + i]
  local outcome, failure
  if ttl ~= checked and (#ttl > 15 or not find(ttl, '^[1-9]%d*$')) then
    failure = 'INVALID ttl=' .. ttl
  else
    checked = ttl
    if not last or pcall('GETRANGE', lease, '0', last) ~= grant then outcome, failure = refuse(lease, grant) end
    if not outcome then
      local extended = pcall('PEXPIRE', lease, ttl)
      if extended == 1 then outcome = 'y'
      elseif extended == 0 then outcome = 'n'
      else failure = extended.err end
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
