-- Frees a name if this holder has it, at once or after a time in which no holder can renew it. If this holder's claim waits,
-- takes it out of the queue.
--
-- KEYS   1 lease   2 mark of the name's slot   3 queue   4 waiting   5 node, except in a cluster
-- ARGV   1 holder   2 ms for which the name stays taken, 0 for none
-- Reply  'released'
--        'not_held'                               the lease was not changed
--        {'invalid', argument, value}             nothing was changed
--
-- The first write is one that a full server accepts: after it the server accepts the others too.

local lease, holder, keep = KEYS[1], ARGV[1], ARGV[2]
if #keep > 15 or not find(keep, '^%d+$') then return {'invalid', 'keep', keep} end
if #holder ~= 49 then return {'invalid', 'holder', holder} end

local is_held, is_evicted = call('GETRANGE', lease, '0', '48') == holder, false
if not is_held then
  local value = call('GET', lease)
  if value and not is_lease(value) then return redis.error_reply(FOREIGN) end
  is_evicted = value and sub(value, 1, 57) == 'evicted ' .. holder
end
-- A key counts as often as it is named: the node key for two.
local queue, node = KEYS[3], KEYS[5]
local known = node and call('EXISTS', queue, node, node) or call('EXISTS', queue)
local places = known % 2 == 1 and queue_of(KEYS, grant, clock())
if places and not is_held then places.vacate(holder) end
if not is_held and not is_evicted then return 'not_held' end
-- An evicted holder cannot keep the name: the operator's decision wins.
if tonumber(keep) > 0 and is_held then
  local value = call('GET', lease)
  keep = string.format('%.0f', keep)
  call('PEXPIRE', lease, keep)
  call('SET', lease, 'kept ' .. sub(value, 51), 'PX', keep)
  -- The client that checks now learns when the name will be free.
  if places then places.have_looked() end
elseif places then
  places.pass_on(known > 1)
  return 'released'
else
  call('DEL', lease)
end
-- If the user lacks the permission for the channel, the release has succeeded all the same.
redis.pcall('PUBLISH', lease .. ':freed', '0')
return 'released'
