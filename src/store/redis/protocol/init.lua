-- Marks a new server as having all its data, so that its first grant is not delayed. Sent after node.lua, to
-- a server that has no lease and no mark.
--
-- KEYS   1 node
-- ARGV   1 longest ttl in ms
-- Reply  'ready'                         also where the server keeps out since its first claim, because it is new
--        {'known', longest ttl}          there is a key of another kind already: nothing was changed
--        {'invalid', 'max_ttl', value}, and {'broken', what keep-out needs, error}    nothing was changed

local node, longest = KEYS[1], ARGV[1]
if #longest > 12 or not string.find(longest, '^[1-9]%d*$') then return {'invalid', 'max_ttl', longest} end
if redis.call('EXISTS', node) == 0 then return refusal_of(node, nil, longest, '1', false, true) or 'ready' end

local known = redis.pcall('HGET', node, 'keep_out')
if type(known) ~= 'string' then return {'known', ''} end
local info, failure = replication()
if failure then return failure end
local run, orders = origin(info)
local ready, time = redis.call('HGET', node, 'ready'), redis.call('TIME')
-- It was neither started nor promoted since the key was made, and has granted nothing.
local is_new = redis.call('HGET', node, 'new') == run .. ' ' .. orders
local keeps_out = string.find(ready or '', '^%d+$') and tonumber(ready) > time[1] * 1000000 + time[2]
if known ~= longest or not is_new or not keeps_out then return {'known', known} end
redis.call('HSET', node, 'ready', '0')
return 'ready'
