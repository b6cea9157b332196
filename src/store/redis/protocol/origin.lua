-- How a server was started and promoted, which shows that it may have lost data. Sent in front of node.lua, and of a script
-- of a store of another kind.

-- Returns what the server tells of replication; or nothing, and the reply of one that cannot tell whether it lost data.
local function replication()
  -- Redis 6.2 may be set to refuse writes after INFO and TIME without this; later servers ignore it.
  redis.replicate_commands()
  local info = redis.pcall('INFO', 'replication')
  if type(info) == 'table' then return nil, {'broken', 'the permission +info', info.err} end
  -- A replica that takes writes would pass for its master, whose replication id it has.
  if not string.find(info, 'role:master', 1, true) then
    return nil, redis.error_reply('READONLY this server is a replica')
  end
  return info
end

-- Returns the run id; how often the server was ordered to follow another one, or none, since its start; the second
-- replication id, which a promotion leaves behind, if there is one; and what the server tells of itself.
local function origin(info)
  local server, orders = redis.call('INFO', 'server'), 0
  for command, calls in string.gmatch(redis.call('INFO', 'commandstats'), 'cmdstat_(%a+):calls=(%d+)') do
    if command == 'replicaof' or command == 'slaveof' or command == 'failover' then orders = orders + calls end
  end
  local second = string.match(info, 'master_replid2:(%x+)')
  return string.match(server, 'run_id:(%x+)'), tostring(orders), string.find(second, '[^0]') and second, server
end
