-- Frees a name on a member of a quorum: releases it, or takes back a token that brought no grant.
--
-- KEYS   1 lease   2 counter
-- ARGV   1 holder   2 'release' or 'take_back'   3 publish command: PUBLISH or SPUBLISH
--        to release:    4 ms for which the name stays taken, 0 for none
--        to take back:  4 the token; what this holder took at it or below is freed, and the counter is put back
--                       5 the last token that was granted to this holder, 0 for none; at it and below nothing is freed
-- Reply  'freed'
--        'not_held'                      this holder has no such lease here
--        {'invalid', argument, value}    nothing was changed
--
-- A release keeps the counter, but nothing of this holder that is still on its way takes the name here again. The first
-- write is one that a full server accepts: after it the server accepts the others too.

local lease, counter = KEYS[1], KEYS[2]
local holder, how, publish, number, granted = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local is_release = how == 'release'
if not is_release and how ~= 'take_back' then return {'invalid', 'how', how} end
if #holder ~= 49 then return {'invalid', 'holder', holder} end
if #number > 16 or not find(number, '^%d+$') then return {'invalid', is_release and 'keep' or 'token', number} end
if not is_release and (#granted > 16 or not find(granted, '^%d+$')) then return {'invalid', 'granted', granted} end
number, granted = tonumber(number), tonumber(granted)

local function is_covered(token)
  return is_release or token > granted and token <= number
end

local value = call('GET', lease)
if value and not is_lease(value) then return redis.error_reply(FOREIGN) end
local taken = call('HMGET', counter, 'by', 'try', 'trier')
if taken[3] == holder and is_covered(tonumber(taken[2])) then
  if is_release then call('HDEL', counter, 'trier') else call('HDEL', counter, 'try', 'trier') end
end
if is_release and taken[1] and sub(taken[1], 1, 50) == holder .. ' ' then call('HDEL', counter, 'by') end

if not value then return 'not_held' end
local is_evicted = sub(value, 1, 8) == 'evicted '
local begin = is_evicted and 9 or 1
if sub(value, begin, begin + 48) ~= holder then return 'not_held' end
if not is_covered(tonumber(string.match(value, '^%d+', begin + 50))) then return 'not_held' end
-- An evicted holder cannot keep the name: the operator's decision wins.
if is_release and number > 0 and not is_evicted then
  local keep = string.format('%.0f', number)
  call('PEXPIRE', lease, keep)
  call('SET', lease, 'kept ' .. sub(value, 51), 'PX', keep)
else
  call('DEL', lease)
end
-- If the user lacks the permission for the channel, the release has succeeded all the same. A token that is taken back
-- frees nothing that any client waits for.
if is_release then redis.pcall(publish, lease .. ':freed', '0') end
return 'freed'
