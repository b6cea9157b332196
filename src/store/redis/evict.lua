-- Ends a holder's right by order of an operator.
--
-- KEYS   1 lease hash
-- ARGV   1 'marked': the holder hears it at its next renewal and the name stays taken for the rest of its ttl, or
--          'now': the name is free at once   2 publish command: PUBLISH or SPUBLISH
-- Reply  {'evicted'}
--        {'not_held'}                             nothing was changed
--        {'invalid', argument, value}             nothing was changed

local lease, how, publish = KEYS[1], ARGV[1], ARGV[2]
if how ~= 'marked' and how ~= 'now' then return {'invalid', 'how', how} end

-- Raises WRONGTYPE where the key is somebody else's, so that it is not deleted.
local fields = redis.call('HKEYS', lease)
if #fields == 0 then return {'not_held'} end
if how == 'now' then
  redis.call('DEL', lease)
  redis.pcall(publish, lease .. ':freed', '0')
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
