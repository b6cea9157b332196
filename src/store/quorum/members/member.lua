-- What a server knows of itself as a member of a quorum. Sent in front of names.lua and place.lua, after origin.lua.
--
-- The key `node` is a hash without expiry:
--   quorum, index, of   which member of which quorum it is. A server without them is blank
--   keep_out            the longest ttl of the quorum in ms
--   incarnation         the one that came in: '<run id>:<orders>:<second replication id>'. With another one the member is out
--   replid              its replication id. While that is the same, so is the incarnation
--   max, floor          the highest mark of any slot, and what it was when the member came in
--   members             the places of all members, as `init` was given them
--   closed_for          the quorum for which this one was closed
--   seen, seen_at       an incarnation that is out, and when it was first seen, by the server's clock in microseconds
--   reserved_by         the run of `init` that may write here
--   asked_for           the quorum that a client asked a blank server for, which has lost its data
-- A server alone that keeps out has `keep_out` in the same key, and a member of the first kind of quorum `floor`.

local node = KEYS[1]
local call, pcall, find, sub, match = redis.call, redis.pcall, string.find, string.sub, string.match

-- tostring would give 1.79e+15.
local function digits(number)
  return string.format('%.0f', number)
end

local info, refusal = replication()
if refusal then return refusal end
local row = call('HMGET', node, 'quorum', 'index', 'of', 'keep_out', 'incarnation', 'replid', 'max', 'floor', 'members',
  'closed_for', 'seen', 'seen_at', 'reserved_by', 'asked_for')
local quorum, index, of, keep_out, incarnation, replid = row[1], row[2], row[3], row[4], row[5], row[6]
local max, floor, members, closed_for, seen, seen_at, reserved_by = row[7], row[8], row[9], row[10], row[11], row[12], row[13]
local asked_for = row[14]
if not quorum and (keep_out or floor) then return {'foreign', floor and 'old' or 'alone'} end

local time = call('TIME')
local clock = time[1] * 1000000 + time[2]
-- The incarnation at this moment. Also without a promotion the replication id changes with the first replica that joins, and
-- some time after the last one left; then the second id is cleared, too.
local present = incarnation
if not (replid and find(info, 'master_replid:' .. replid, 1, true)) then
  local run, orders, second = origin(info)
  local begin = run .. ':' .. orders .. ':'
  local is_same = incarnation and (second and incarnation == begin .. second or not second and sub(incarnation, 1, #begin) == begin)
  if not is_same then present = begin .. (second or '') end
end
local is_in = quorum and present == incarnation

-- Notes when the incarnation was first seen, and for which quorum a blank server was asked. A clock that was ahead then does not
-- make the keep-out longer.
local function see(asked)
  local at = clock
  if seen == present then at = math.min(clock, tonumber(seen_at)) end
  local is_lost = asked and not quorum and not asked_for
  if seen ~= present or seen_at ~= digits(at) or is_lost then
    -- A full server accepts the first command, and then also the second.
    call('HDEL', node, '-')
    call('HSET', node, 'seen', present, 'seen_at', digits(at))
    if is_lost then call('HSET', node, 'asked_for', asked) end
    seen, seen_at = present, digits(at)
  end
  return at
end

-- Returns the reply of a member that takes no part in what this one is asked.
local function absence(asked, place, count)
  local is_it = quorum == asked and index == place and of == count
  if is_it and closed_for then return {'closed', closed_for} end
  -- One that was closed for the quorum that is asked is a member of it that is out.
  if quorum and not is_it and closed_for ~= asked then return {'other', quorum, index, of, members} end
  if not (is_it and is_in) then return {'out', present, see(asked), clock} end
end
