-- Frees a name if this holder has it, at once or after a time in which nobody can renew it.
--
-- KEYS   1 lease hash
-- ARGV   1 holder   2 ms for which the name stays taken, 0 for none   3 publish command: PUBLISH or SPUBLISH
-- Reply  {'released'}
--        {'not_held'}                             nothing was changed
--        {'invalid', argument, value}             nothing was changed
--
-- Only commands that a full server accepts.

local lease, holder, keep, publish = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if #keep > 15 or not string.find(keep, '^%d+$') then return {'invalid', 'keep', keep} end

local found = redis.call('HGET', lease, holder)
if found ~= '1' and found ~= 'evicted' then return {'not_held'} end
if tonumber(keep) > 0 then
  redis.call('PEXPIRE', lease, string.format('%.0f', keep))
  redis.call('HDEL', lease, holder)
  return {'released'}
end
redis.call('DEL', lease)
-- A user without rights to the channel has released all the same.
redis.pcall(publish, lease .. ':freed', '0')
return {'released'}
