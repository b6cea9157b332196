-- Takes a name, or returns its holder. If clients wait in the queue, only the first of them gets the name.
--
-- KEYS   1 lease   2 mark of the name's slot   3 queue   4 alive   5 node, except in a cluster
-- ARGV   1 holder   2 ttl in ms   3 floor under the token, 0 for none   4 info, a JSON object with at least one member
--        and from clients that wait in the queue:
--        5 client   6 patience in ms: how long the client counts as alive   7 how many more of its callers wait: if there
--        are any, it joins the end of the queue again   8 ms for which the name is offered to the first client in the queue
--        9 publish command
--        and at the end, from clients that create the node key where it is missing: their longest ttl in ms, and 'alone' if
--        the server never has a replica
-- Reply  'granted <token>'               also when the holder asks again: its token, and the full ttl again
--        {'held', ms left, value}        the value of the lease, '' if there is none; -1 ms left: it has no expiry
--        {'queued', ms left, value, clients before it}        the same to a client in the queue
--        {'kept_out', ms left}           the server grants nothing yet, because its data may be lost
--        {'kept_out', ms left, clients before it}        the same to a client in the queue
--        'member'                        the server belongs to a store of another kind: nothing was changed
--        {'mismatch', longest ttl of the others, of this client}    nothing was changed
--        {'too_long', ttl, longest}      nothing was changed
--        {'invalid', argument, value, server's microseconds}      nothing was changed
--        {'broken', 'mark', value}                                 nothing was changed
--        {'broken', what keep-out needs, error}                    nothing was changed

local lease, mark, queue, alive, node = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local holder, ttl, floor, info = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local client, patience, more, offer_ms, publish, max_ttl, alone
if #ARGV < 9 then max_ttl, alone = ARGV[5], ARGV[6]
else
  client, patience, more, offer_ms, publish = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
  max_ttl, alone = ARGV[10], ARGV[11]
end

-- All arguments are checked before the first write, and numbers as text.
if #ttl > 15 or not find(ttl, '^[1-9]%d*$') then return {'invalid', 'ttl', ttl, '0'} end
if not find(floor, '^%d+$') then return {'invalid', 'floor', floor, '0'} end
if #holder ~= 49 or sub(holder, 33, 33) ~= '-' or find(holder, ' ', 1, true) then return {'invalid', 'holder', holder, '0'} end
if sub(info, 1, 2) ~= '{"' or sub(info, -1) ~= '}' then return {'invalid', 'info', info, '0'} end
if client then
  if not find(client, '^%x+$') then return {'invalid', 'client', client, '0'} end
  if #patience > 9 or not find(patience, '^[1-9]%d*$') then return {'invalid', 'patience', patience, '0'} end
  if #more > 9 or not find(more, '^%d+$') then return {'invalid', 'more', more, '0'} end
  if #offer_ms > 9 or not find(offer_ms, '^[1-9]%d*$') then return {'invalid', 'offer', offer_ms, '0'} end
end
if max_ttl and (#max_ttl > 12 or not find(max_ttl, '^[1-9]%d*$')) then return {'invalid', 'max_ttl', max_ttl, '0'} end

-- Usually none of the keys exists: one command finds that out.
local longest
local is_plain = not (node and max_ttl) and call('EXISTS', lease, queue, alive, node or lease) == 0
if node and (max_ttl or not is_plain and call('EXISTS', node) == 1) then
  local refusal, left = refusal_of(node, mark, max_ttl or '0', ttl, alone == 'alone')
  if refusal then return refusal end
  if left and not client then return {'kept_out', left} end
  if left then
    -- The client keeps its place, or the offer that it has, until the name can be granted.
    if call('GET', lease) == 'offer ' .. client then
      call('PEXPIRE', lease, left + offer_ms)
      return {'kept_out', left, 0}
    end
    queue_of(lease, queue, alive, now_ms(), offer_ms, publish).join(client, patience)
    return {'kept_out', left, call('ZRANK', queue, client)}
  end
  is_plain = call('EXISTS', lease, queue, alive) == 0
  longest = not is_plain and call('HGET', node, 'keep_out')
end
local value = not is_plain and call('GET', lease)
if value then
  if not is_lease(value) then return redis.error_reply(FOREIGN) end
  if sub(value, 1, 49) == holder then
    call('PEXPIRE', lease, ttl)
    return 'granted ' .. string.match(value, '%d+', 51)
  end
  -- Nothing but a kept name lasts longer from now than the longest ttl: the clock was ahead when it was written.
  if longest and sub(value, 1, 5) ~= 'kept ' and call('PTTL', lease) > tonumber(longest) then call('PEXPIRE', lease, longest) end
  if not client then return {'held', call('PTTL', lease), value} end
end
local is_offered = client and value == 'offer ' .. client

-- Redis 6.2 may be set to refuse writes after TIME without this; later servers ignore it.
redis.replicate_commands()
local time = call('TIME')
-- Joined as text: formatting numbers costs a tenth of a grant.
local since = time[1] .. sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(since)
local waiting

if not is_plain and not is_offered then
  waiting = queue_of(lease, queue, alive, math.floor(now / 1000), offer_ms, publish)
  local first = false
  if not value then
    local behind
    first, behind = waiting.head()
    if first and first ~= client then waiting.offer(first, behind) end
  end
  if first ~= nil and (not first or first ~= client) then
    -- No key at all: more dead clients are to be dropped, and the next claim goes on at once.
    local left = call('PTTL', lease)
    if left == -2 then left = 0 end
    value = call('GET', lease) or ''
    if not client then return {'held', left, value} end
    waiting.join(client, patience)
    -- Dead clients do not count before it: the next client checks as soon as the holder's time is over.
    waiting.head()
    return {'queued', left, value, call('ZRANK', queue, client)}
  end
end

local token, height = since, now
if floor ~= '0' and tonumber(floor) >= now then
  -- A floor more than a day ahead is taken for a mistake, because its effect would be permanent. One that the mark has
  -- reached has no effect.
  local last = tonumber(floor) > now + 86400000000 and (call('GET', mark) or '0')
  if last and find(last, '^%d+$') and tonumber(last) < tonumber(floor) then return {'invalid', 'floor', floor, since} end
  if not last then
    height = floor + 1
    -- tostring would give 1.79e+15.
    token = string.format('%.0f', height)
  end
end
if height > 9007199254740989 then return {'broken', 'mark', since} end
-- The mark is the first write, and one that a full server refuses: then nothing is half done. It is nearly always below
-- the clock, so it is replaced in one command, and corrected if it was not.
local last = call('SET', mark, token, 'GET')
if last then
  local above = find(last, '^%d+$') and last + 1 or math.huge
  if above > 9007199254740989 then
    call('SET', mark, last)
    return {'broken', 'mark', sub(last, 1, 64)}
  end
  if above > height then
    token = string.format('%.0f', above)
    call('SET', mark, token)
  end
end
-- A client with an offer has left the queue already.
if client and waiting then waiting.leave(client) end
if token ~= since then info = '{"since":' .. since .. ',' .. sub(info, 2) end
-- One write sets the lease and its expiry, and replaces an offer that is accepted.
call('SET', lease, holder .. ' ' .. token .. ' ' .. info, 'PX', ttl)
if client and tonumber(more) > 0 then
  waiting = waiting or queue_of(lease, queue, alive, math.floor(now / 1000), offer_ms, publish)
  waiting.join(client, patience)
end
return 'granted ' .. token
