-- What a server keeps of itself: whether it still has its data. Sent in front of acquire.lua, after queue.lua, and in front
-- of init.lua, each time after origin.lua.
--
-- The key is a hash without expiry. If it is missing, or the server was started or promoted since it was written, data may
-- be lost: then nothing is granted until everything that may be forgotten is over, which takes no longer than the longest
-- ttl.
--   keep_out   the longest ttl in ms, the same for all clients
--   ready      from when it grants, by its clock in microseconds
--   replid     its replication id. Each start and each promotion changes it, and so does the first replica that joins, and
--              the end of the backlog after the last one left. Only if it differs, the next fields decide
--   run        its run id: each start changes it
--   orders     how often it was ordered to follow a server, or none, since its start. A promotion also leaves a second
--              replication id behind, which the end of the backlog clears, as statistics can be reset: one of them is enough
--   backlog    '1' if it had replicas at a claim, which may have been promoted while it was down
--   new        on a server that had no such key: its run and orders when the key was made
--   floor      only on a server of a store of another kind
--
-- Two orders of an operator are taken for a promotion, which costs a keep-out that nothing needs: REPLICAOF NO ONE on a
-- master to which a first replica then comes, and CONFIG RESETSTAT before a replica comes.

-- Returns the reply to a claim that is refused; nil and the ms for which the server still keeps out; or nothing if it takes
-- the claim. The longest ttl of a client that creates no key is '0'. On a server that is new nothing is forgotten. One
-- that is alone never has a replica, as its operator says: only then can none have been promoted while it was down.
local function refusal_of(node, mark, max_ttl, ttl, is_alone, is_new)
  local find, match = string.find, string.match
  local longest = redis.pcall('HGET', node, 'keep_out')
  if type(longest) == 'table' then return {'broken', 'a hash at ' .. node, longest.err} end
  local ready = redis.call('HGET', node, 'ready')
  local is_known = longest or ready
  if not is_known and max_ttl == '0' then return end
  if is_known then
    if redis.call('HGET', node, 'floor') then return 'member' end
    if #(longest or '') > 12 or not find(longest or '', '^[1-9]%d*$') then
      return {'broken', 'a number in keep_out of ' .. node, 'ERR "' .. string.sub(longest or '', 1, 64) .. '"'}
    end
    if #(ready or '') > 16 or not find(ready or '', '^%d+$') then
      return {'broken', 'a number in ready of ' .. node, 'ERR "' .. string.sub(ready or '', 1, 64) .. '"'}
    end
  end
  longest = longest or max_ttl
  if max_ttl ~= '0' and longest ~= max_ttl then return {'mismatch', longest, max_ttl} end
  if tonumber(ttl) > tonumber(longest) then return {'too_long', ttl, longest} end
  local info, failure = replication()
  if failure then return failure end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  -- A hundredth more, because the holders' clocks may be slower.
  local span = longest * 1010 + 2000
  -- Nothing that was forgotten lasts longer from now: the clock was ahead when it was noted.
  local ends = math.min(tonumber(ready or '0'), now + span)
  local replid = redis.call('HGET', node, 'replid')
  if not (replid and #replid == 40 and find(info, 'master_replid:' .. replid, 1, true)) then
    local run, orders, is_promoted, server = origin(info)
    local is_restarted = run ~= redis.call('HGET', node, 'run')
    if is_new then
      ends = 0
    elseif not is_known or is_restarted or is_promoted or redis.call('HGET', node, 'orders') ~= orders then
      local since = now
      -- What another run has forgotten it granted before this one started. Not so if one of its replicas, or this server
      -- as a replica, was promoted since: no key tells, because a replica may have joined after the last claim. And the
      -- start is not known if the clock was behind.
      if is_alone and is_known and is_restarted and not is_promoted and orders == '0' and redis.call('HGET', node, 'backlog') == '0' then
        local start = (time[1] - match(server, 'uptime_in_seconds:(%-?%d+)') + 2) * 1000000
        local last = redis.call('GET', mark) or '0'
        if find(last, '^%d+$') and tonumber(last) < start then since = math.min(now, start) end
      end
      ends = math.max(ends, since + span)
    end
    redis.call('HSET', node, 'keep_out', longest, 'ready', string.format('%.0f', ends), 'run', run, 'orders', orders,
      'replid', match(info, 'master_replid:(%x+)'), 'backlog', match(info, 'repl_backlog_active:(%d)'))
    if not is_known then redis.call('HSET', node, 'new', run .. ' ' .. orders) end
  elseif tonumber(ready) > ends then
    redis.call('HSET', node, 'ready', string.format('%.0f', ends))
  end
  if ends > now then return nil, math.ceil((ends - now) / 1000) end
end
