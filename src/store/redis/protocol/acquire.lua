-- Takes a name, or returns its holder. While clients wait in the queue, a free name is granted to the first of them.
--
-- KEYS   1 lease   2 mark of the name's slot   3 queue   4 waiting   5 node, except in a cluster
-- ARGV   1 holder   2 ttl in ms   3 floor under the token, 0 for none   4 info, a JSON object with at least one member
--        and of a claim that waits, or of any before further arguments:
--        5 term in ms: how long it waits at its client's place from now on; 0: it does not wait
--        6 '1' if its client hears of a grant at once, otherwise '0'
--        and from clients that create the node key where it is missing: 7 their longest ttl in ms   8 'alone' if the server
--        never has a replica
-- Reply  'granted <token>'               also when the holder asks again: its token, and the full ttl again
--        {'held', ms left, value}        the value of the lease, '' if there is none; -1 ms left: it has no expiry
--        {'queued', ms left, value, height, clients before it}        the same to a claim that waits; the height is the highest
--                                        token that can have been granted so far
--        {'kept_out', ms left}           the server grants nothing yet, because its data may be lost
--        {'kept_out', ms left, height, clients before it}        the same to a claim that waits
--        'member'                        the server belongs to a store of another kind: nothing was changed
--        {'mismatch', longest ttl of the others, of this client}    nothing was changed
--        {'too_long', ttl, longest}      nothing was changed
--        {'invalid', argument, value, server's microseconds}       nothing of this claim was changed
--        {'broken', 'mark', value}                                 the same
--        {'broken', what keep-out needs, error}                    nothing was changed

local lease, mark, queue, node = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local holder, ttl, floor, info, term, listens = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local max_ttl, alone = ARGV[7], ARGV[8]

-- All arguments are checked before the first write, and numbers as text.
if #ttl > 15 or not find(ttl, '^[1-9]%d*$') then return {'invalid', 'ttl', ttl, '0'} end
if not find(floor, '^%d+$') then return {'invalid', 'floor', floor, '0'} end
if #holder ~= 49 or sub(holder, 33, 33) ~= '-' or find(holder, ' ', 1, true) then return {'invalid', 'holder', holder, '0'} end
if sub(info, 1, 2) ~= '{"' or sub(info, -1) ~= '}' then return {'invalid', 'info', info, '0'} end
if term then
  if #term > 9 or not find(term, '^%d+$') then return {'invalid', 'term', term, '0'} end
  if listens ~= '0' and listens ~= '1' then return {'invalid', 'listens', tostring(listens), '0'} end
end
if max_ttl and (#max_ttl > 12 or not find(max_ttl, '^[1-9]%d*$')) then return {'invalid', 'max_ttl', max_ttl, '0'} end
local waits = term and tonumber(term) > 0

-- Usually none of the keys exists: one command finds that out. A key counts as often as it is named: the node key for three.
local known = node and call('EXISTS', lease, queue, node, node, node) or call('EXISTS', lease, queue)
local is_plain, longest = known % 3 == 0, nil
if node and (max_ttl or known > 2) then
  local refusal, left = refusal_of(node, mark, max_ttl or '0', ttl, alone == 'alone')
  if refusal then return refusal end
  if left and not waits then return {'kept_out', left} end
  if left then
    -- The client keeps its place until the name can be granted.
    local places = queue_of(KEYS, grant, clock())
    places.stay(holder, term, listens, floor, info, true)
    return {'kept_out', left, places.standing(holder)}
  end
  longest = not is_plain and call('HGET', node, 'keep_out')
end
local value = not is_plain and call('GET', lease)
if value then
  if not is_lease(value) then return redis.error_reply(FOREIGN) end
  if sub(value, 1, 49) == holder then
    call('PEXPIRE', lease, ttl)
    return 'granted ' .. string.match(value, '%d+', 51)
  end
  -- An older version kept the name for a client, which is no lease.
  if sub(value, 1, 6) == 'offer ' then value = false end
end
if value then
  -- Nothing but a kept name lasts longer from now than the longest ttl: the clock was ahead when it was written.
  if longest and sub(value, 1, 5) ~= 'kept ' and call('PTTL', lease) > tonumber(longest) then call('PEXPIRE', lease, longest) end
  if not waits then return {'held', call('PTTL', lease), value} end
end

local since = clock()
if not is_plain then
  local places = queue_of(KEYS, grant, since)
  if not value then
    if waits then places.stay(holder, term, listens, floor, info, false) end
    local holds, token = places.grant_next(holder)
    if holds == holder then
      call('PEXPIRE', lease, ttl)
      return 'granted ' .. token
    end
    -- No key at all: more dead clients are to be dropped, and the next claim goes on at once.
    if holds ~= nil then value = call('GET', lease) or '' end
  end
  if value then
    local left = value == '' and 0 or call('PTTL', lease)
    if not waits then return {'held', left, value} end
    places.stay(holder, term, listens, floor, info, true)
    return {'queued', left, value, places.standing(holder)}
  end
end
local token, refusal = grant(lease, mark, since, holder, floor, info, ttl)
return token and 'granted ' .. token or refusal
