-- Frees a name if this holder has it, at once or after a time in which nobody can renew it.
--
-- KEYS   1 lease hash   2 queue   3 alive
-- ARGV   1 holder   2 ms for which the name stays taken, 0 for none   3 publish command: PUBLISH or SPUBLISH
--        4 ms for which the name is offered to the first in line
-- Reply  {'released'}
--        {'not_held'}                             nothing was changed
--        {'invalid', argument, value}             nothing was changed
--
-- Only commands that a full server accepts.

local lease, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local holder, keep, publish, offer_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if #keep > 15 or not string.find(keep, '^%d+$') then return {'invalid', 'keep', keep} end
if #offer_ms > 9 or not string.find(offer_ms, '^[1-9]%d*$') then return {'invalid', 'offer', offer_ms} end

local found = redis.call('HGET', lease, holder)
if found ~= '1' and found ~= 'evicted' then return {'not_held'} end
if tonumber(keep) > 0 then
  redis.call('PEXPIRE', lease, string.format('%.0f', keep))
  redis.call('HDEL', lease, holder)
  -- Whoever looks now learns when it will be free.
  line_of(lease, queue, alive, 0, offer_ms, publish).warn(keep)
  redis.pcall(publish, lease .. ':freed', '0')
  return {'released'}
end
if redis.call('EXISTS', queue) == 1 then
  redis.replicate_commands()
  local time = redis.call('TIME')
  redis.call('DEL', lease)
  line_of(lease, queue, alive, time[1] * 1000 + math.floor(time[2] / 1000), offer_ms, publish).pass_on()
  return {'released'}
end
redis.call('DEL', lease)
-- A user without rights to the channel has released all the same.
redis.pcall(publish, lease .. ':freed', '0')
return {'released'}
