-- Evicts the holder of a name, for an operator.
--
-- KEYS   1 lease   2 queue   3 alive
-- ARGV   1 'marked': the holder is told at its next renewal and the name stays taken for the rest of its ttl, or
--          'now': the name is free at once   2 publish command: PUBLISH or SPUBLISH
--        3 ms for which the name is offered to the first client in the queue
-- Reply  'evicted'
--        'not_held'                               nothing was changed
--        {'invalid', argument, value}             nothing was changed

local lease, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local how, publish, offer_ms = ARGV[1], ARGV[2], ARGV[3]
if how ~= 'marked' and how ~= 'now' then return {'invalid', 'how', how} end
if #offer_ms > 9 or not find(offer_ms, '^[1-9]%d*$') then return {'invalid', 'offer', offer_ms} end

local value = call('GET', lease)
if not value then return 'not_held' end
-- So that another program's key is not deleted.
if not is_lease(value) then return redis.error_reply(FOREIGN) end
if how == 'now' then
  local now = now_ms()
  call('DEL', lease)
  queue_of(lease, queue, alive, now, offer_ms, publish).pass_on()
  return 'evicted'
end
if find(value, '^evicted ') then return 'evicted' end
-- It was released already and is only kept for a while, or it is offered.
if not find(value, '^%x+%-') then return 'not_held' end
-- A full server accepts this command, and then also the next one.
call('ZREM', queue, '')
call('SET', lease, 'evicted ' .. value, 'KEEPTTL')
return 'evicted'
