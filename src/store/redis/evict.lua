-- Ends a holder's right by order of an operator.
--
-- KEYS   1 lease hash   2 queue   3 alive
-- ARGV   1 'marked': the holder hears it at its next renewal and the name stays taken for the rest of its ttl, or
--          'now': the name is free at once   2 publish command: PUBLISH or SPUBLISH
--        3 ms for which the name is offered to the first in line
-- Reply  {'evicted'}
--        {'not_held'}                             nothing was changed
--        {'invalid', argument, value}             nothing was changed

local lease, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local how, publish, offer_ms = ARGV[1], ARGV[2], ARGV[3]
if how ~= 'marked' and how ~= 'now' then return {'invalid', 'how', how} end
if #offer_ms > 9 or not string.find(offer_ms, '^[1-9]%d*$') then return {'invalid', 'offer', offer_ms} end

-- Raises WRONGTYPE where the key is somebody else's, so that it is not deleted.
local fields = redis.call('HKEYS', lease)
if #fields == 0 then return {'not_held'} end
if how == 'now' then
  redis.replicate_commands()
  local time = redis.call('TIME')
  redis.call('DEL', lease)
  line_of(lease, queue, alive, time[1] * 1000 + math.floor(time[2] / 1000), offer_ms, publish).pass_on()
  return {'evicted'}
end
for _, field in ipairs(fields) do
  -- The dash is what tells a holder from the other fields.
  if string.find(field, '-', 1, true) then
    redis.call('HSET', lease, field, 'evicted')
    return {'evicted'}
  end
end
-- Released already, and only kept for a while.
return {'not_held'}
