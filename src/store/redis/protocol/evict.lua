-- Evicts the holder of a name, for an operator.
--
-- KEYS   1 lease   2 mark of the name's slot   3 queue   4 waiting   5 node, except in a cluster
-- ARGV   1 'marked': the holder is told at its next renewal and the name stays taken for the rest of its ttl, or
--          'now': the name is free at once, or the next client's in the queue
-- Reply  'evicted'
--        'not_held'                               nothing was changed
--        {'invalid', argument, value}             nothing was changed

local lease, how = KEYS[1], ARGV[1]
if how ~= 'marked' and how ~= 'now' then return {'invalid', 'how', how} end

local value = call('GET', lease)
if not value then return 'not_held' end
-- So that another program's key is not deleted.
if not is_lease(value) then return redis.error_reply(FOREIGN) end
if how == 'now' then
  queue_of(KEYS, grant, clock()).pass_on(KEYS[5] and call('EXISTS', KEYS[5]) == 1)
  return 'evicted'
end
if find(value, '^evicted ') then return 'evicted' end
-- It was released already and is only kept for a while.
if not find(value, '^%x+%-') then return 'not_held' end
-- A full server accepts this command, and then also the next one.
call('ZREM', KEYS[3], '')
call('SET', lease, 'evicted ' .. value, 'KEEPTTL')
return 'evicted'
