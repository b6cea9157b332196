-- Notes of a server that is new that it has all its data, so that its first grant takes no wait. Sent after node.lua.
--
-- KEYS   1 node
-- ARGV   1 longest ttl in ms
-- Reply  'ready'
--        {'known', longest ttl}          there is a key already: nothing was changed
--        {'invalid', 'max_ttl', value}, and {'broken', what keep-out needs, error}    nothing was changed

local node, longest = KEYS[1], ARGV[1]
if #longest > 12 or not string.find(longest, '^[1-9]%d*$') then return {'invalid', 'max_ttl', longest} end
if redis.call('EXISTS', node) == 1 then
  local known = redis.pcall('HGET', node, 'keep_out')
  return {'known', type(known) == 'string' and known or ''}
end
return refusal_of(node, nil, longest, '1', true) or 'ready'
