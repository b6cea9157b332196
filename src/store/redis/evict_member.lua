-- Evicts the holder of a name on a member of a quorum, for an operator. Nothing of the holder that is still on its way
-- takes the name here again.
--
-- KEYS   1 lease   2 counter
-- ARGV   1 'marked': the holder is told at its next renewal and the name stays taken for the rest of its ttl, or
--          'now': the name is free at once   2 publish command: PUBLISH or SPUBLISH
-- Reply  'evicted'
--        'not_held'                      no lease was changed
--        {'invalid', argument, value}    nothing was changed

local lease, counter = KEYS[1], KEYS[2]
local how, publish = ARGV[1], ARGV[2]
if how ~= 'marked' and how ~= 'now' then return {'invalid', 'how', how} end

local value = call('GET', lease)
if value and not is_lease(value) then return redis.error_reply(FOREIGN) end
-- A full server accepts this command, and then also the next one.
call('HDEL', counter, 'by', 'trier')
if not value then return 'not_held' end
if how == 'now' then
  call('DEL', lease)
  redis.pcall(publish, lease .. ':freed', '0')
  return 'evicted'
end
if find(value, '^evicted ') then return 'evicted' end
-- It was released already and is only kept for a while.
if not find(value, '^%x+%-') then return 'not_held' end
call('SET', lease, 'evicted ' .. value, 'KEEPTTL')
return 'evicted'
