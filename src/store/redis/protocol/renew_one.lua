-- Extends one lease to its full ttl, if its holder still has it by the same grant. Never creates a lease. It is for a
-- cluster, where a batch of leases is as many calls: it does as little as it can.
--
-- KEYS   lease
-- ARGV   the grant: '<holder> <token> ', with the space after the token, which is what the value of the lease begins with;
--        the ttl in ms
-- Reply  1 renewed, 0 refused, 2 evicted
--        an error: nothing was changed

local lease, grant, ttl = KEYS[1], ARGV[1], ARGV[2]
if #grant < 52 or not find(grant, '^%x+%-%x+ %d+ $') then return redis.error_reply('INVALID grant=' .. grant) end
if #ttl > 15 or not find(ttl, '^[1-9]%d*$') then return redis.error_reply('INVALID ttl=' .. ttl) end
if call('GETRANGE', lease, '0', tostring(#grant - 1)) == grant then return call('PEXPIRE', lease, ttl) end
local value = call('GET', lease)
if not value then return 0 end
if not is_lease(value) then return redis.error_reply(FOREIGN) end
if sub(value, 1, 8 + #grant) == 'evicted ' .. grant then return 2 end
return 0
