-- Frees a name if this holder has it, at once or after a time in which no holder can renew it.
--
-- KEYS   1 lease   2 queue   3 alive
-- ARGV   1 holder   2 ms for which the name stays taken, 0 for none   3 publish command: PUBLISH or SPUBLISH
--        4 ms for which the name is offered to the first client in the queue
-- Reply  'released'
--        'not_held'                               nothing was changed
--        {'invalid', argument, value}             nothing was changed
--
-- The first write is one that a full server accepts: after it the server accepts the others too.

local lease, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local holder, keep, publish, offer_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if #keep > 15 or not find(keep, '^%d+$') then return {'invalid', 'keep', keep} end
if #offer_ms > 9 or not find(offer_ms, '^[1-9]%d*$') then return {'invalid', 'offer', offer_ms} end
if #holder ~= 49 then return {'invalid', 'holder', holder} end

local is_evicted = false
if call('GETRANGE', lease, '0', '48') ~= holder then
  local value = call('GET', lease)
  if value and not is_lease(value) then return redis.error_reply(FOREIGN) end
  is_evicted = value and sub(value, 1, 57) == 'evicted ' .. holder
  if not is_evicted then return 'not_held' end
end
-- An evicted holder cannot keep the name: the operator's decision wins.
if tonumber(keep) > 0 and not is_evicted then
  local value = call('GET', lease)
  keep = string.format('%.0f', keep)
  call('PEXPIRE', lease, keep)
  call('SET', lease, 'kept ' .. sub(value, 51), 'PX', keep)
  -- The client that checks now learns when the name will be free.
  queue_of(lease, queue, alive, 0, offer_ms, publish).warn(call('ZRANGE', queue, 0, 0)[1], keep)
  redis.pcall(publish, lease .. ':freed', '0')
  return 'released'
end
if call('EXISTS', queue) == 1 then
  local now = now_ms()
  call('DEL', lease)
  queue_of(lease, queue, alive, now, offer_ms, publish).pass_on()
  return 'released'
end
call('DEL', lease)
-- If the user lacks the permission for the channel, the release has succeeded all the same.
redis.pcall(publish, lease .. ':freed', '0')
return 'released'
