-- What a member notes of itself: the functions `look`, `adopt`, `reserve`, `open` and `close` of the protocol. Sent after
-- origin.lua.
--
-- KEYS   1 node
-- ARGV   1 'look'            2 '<quorum> <index> <of>' by a client that was told `away`
--        1 'reserve'         2 the run of `init`
--        1 'close'           2 '<quorum> <index> <of>'   3 the quorum for which it is closed
--        1 'adopt', 'open'   2 '<quorum> <index> <of>'   3 the incarnation that was found, or the run of `init`
--                            4 longest ttl in ms   5 the highest token that any grant can have   6 the locations of all members
-- Reply  {'node', clock, incarnation, when it was first seen or 0, 1 if it is in or 0, then name and value of each of `fields`
--        that the node has then}
--        {'foreign', 'alone' or 'old'}     nothing was changed: it grants leases alone, or is a member of an earlier version
--        {'invalid', argument, value}      nothing was changed
--
-- The key `node` is a hash without expiry:
--   member              '<quorum> <index> <of>': which member of which quorum it is. A server without it is blank
--   keep_out            the longest ttl of the quorum in ms
--   max                 not below the mark of any slot
--   floor               what `max` was when the member came in
--   incarnation         the one that came in: '<run id>:<orders>:<second replication id>'. With another one the member is away
--   replid              its replication id. While that is the same, so is the incarnation
--   members             the locations of all members, as `init` was given them
--   closed_for          the quorum for which this one was closed
--   seen, seen_at       an incarnation that is away, and when it was first seen, by the server's clock in microseconds
--   reserved_by         the run of `init` that may write here
--   asked_for           the quorum that a client asked a blank server for, which has lost its data
-- A server alone that keeps out has `keep_out` in the same key, and a member of an earlier version `floor` without `member`.

local fields = {'member', 'keep_out', 'floor', 'max', 'closed_for', 'reserved_by', 'members', 'asked_for'}
local call, find, sub, match = redis.call, string.find, string.sub, string.match
local node, what, of, by = KEYS[1], ARGV[1], ARGV[2] or '', ARGV[3]
local info, refusal = replication()
if refusal then return refusal end
local row = call('HMGET', node, 'member', 'keep_out', 'floor', 'max', 'closed_for', 'incarnation', 'replid')
local member, keep_out, floor, max, closed_for, incarnation, replid = unpack(row)
if not member and (floor or keep_out) then return {'foreign', floor and 'old' or 'alone'} end

-- All arguments are checked before the first write.
for i = 2, #ARGV do
  local form = i == 2 and what ~= 'reserve' and '^%d+ %d+ %d+$' or '^%d+$'
  local is_text = i == 6 or i == 3 and what == 'adopt'
  if not is_text and (#ARGV[i] > 60 or not find(ARGV[i], form)) then return {'invalid', 'argument', ARGV[i]} end
end

-- tostring would give 1.79e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- The incarnation at this moment. Also without a promotion the replication id changes with the first replica that joins, and
-- some time after the last one left; then the second id is cleared, too.
local present, is_in = incarnation, replid and find(info, 'master_replid:' .. replid, 1, true)
if not is_in then
  local run, orders, second = origin(info)
  local begin = run .. ':' .. orders .. ':'
  present = begin .. (second or '')
  is_in = incarnation == present or incarnation and not second and sub(incarnation, 1, #begin) == begin
  if is_in then
    present = incarnation
    -- A full server accepts the first command, and then also the second.
    call('HDEL', node, '-')
    call('HSET', node, 'replid', match(info, 'master_replid:(%x+)'))
  end
end

-- When an incarnation that is away was first seen. A clock that was ahead then does not make the keep-out longer.
local time = call('TIME')
local since, clock = 0, time[1] * 1000000 + time[2]
if not is_in or closed_for then
  local seen, seen_at, asked_for = unpack(call('HMGET', node, 'seen', 'seen_at', 'asked_for'))
  since = seen == present and math.min(clock, tonumber(seen_at)) or clock
  local is_lost = not member and what == 'look' and of ~= '' and not asked_for
  if seen ~= present or seen_at ~= digits(since) or is_lost then
    call('HDEL', node, '-')
    call('HSET', node, 'seen', present, 'seen_at', digits(since))
    if is_lost then call('HSET', node, 'asked_for', match(of, '^%d+')) end
  end
end

local is_it = member == of
-- It is blank, or was closed to become a member of this quorum.
local may_become = not member or not is_it and closed_for == match(of, '^%d+')
-- It has the data of another member of this quorum, as one that was its replica. Who adopts it has seen that the other one
-- answers, and is another server.
local is_displaced = member and not is_it and not is_in and not closed_for
  and match(member, '^%d+ ') == match(of, '^%d+ ') and match(member, ' %d+$') == match(of, ' %d+$')

local function write()
  local lowest = digits(math.max(tonumber(ARGV[5]), tonumber(max or '0')) + 1)
  is_in = true
  call('DEL', node)
  -- The longest ttl of a member that is away stays.
  call('HSET', node, 'member', of, 'keep_out', is_it and keep_out or ARGV[4], 'incarnation', present,
    'replid', match(info, 'master_replid:(%x+)'), 'max', lowest, 'floor', lowest, 'members', ARGV[6])
end

if what == 'reserve' then
  call('HSET', node, 'reserved_by', of)
elseif what == 'adopt' then
  local is_away = is_it and not closed_for and not is_in
  -- A hundredth more, because the holders' clocks may be slower.
  local span = (is_it and keep_out or ARGV[4]) * 1010 + 2000
  if (is_away or may_become or is_displaced) and clock - since >= span and present == by then write() end
elseif what == 'open' then
  if may_become and call('HMGET', node, 'reserved_by')[1] == by then write() end
elseif what == 'close' then
  if is_it and not closed_for and match(of, '^%d+') ~= by then call('HSET', node, 'closed_for', by) end
elseif what ~= 'look' then
  return {'invalid', 'what', what}
end

local answer = {'node', clock, present, since, is_in and 1 or 0}
for i, value in ipairs(call('HMGET', node, unpack(fields))) do
  if value then
    answer[#answer + 1] = fields[i]
    answer[#answer + 1] = value
  end
end
return answer
