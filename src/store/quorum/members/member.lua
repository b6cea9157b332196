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

-- The server's clock in microseconds, as text: to join it costs less than to format a number.
-- This function and the next take nothing from around them: each such name would cost every run of the script a little.
local function clock_us()
  local time = redis.call('TIME')
  return time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
end

-- Notes when this incarnation was first seen, and for which quorum a blank server was asked, if any. Returns when that
-- was. A clock that was ahead then does not make the keep-out longer.
local function see(present, clock, asked)
  local node, call = KEYS[1], redis.call
  local row = call('HMGET', node, 'seen', 'seen_at', 'asked_for')
  local at = clock
  if row[1] == present then at = math.min(clock, tonumber(row[2])) end
  local seen_at, is_lost = string.format('%.0f', at), asked and not row[3]
  if row[1] ~= present or row[2] ~= seen_at or is_lost then
    -- A full server accepts the first command, and then also the second.
    call('HDEL', node, '-')
    call('HSET', node, 'seen', present, 'seen_at', seen_at)
    if is_lost then call('HSET', node, 'asked_for', asked) end
  end
  return at
end

local info, refusal = replication()
if refusal then return refusal end
local row = call('HMGET', node, 'quorum', 'index', 'of', 'keep_out', 'incarnation', 'replid', 'max', 'floor', 'closed_for')
local quorum, index, of, keep_out, incarnation, replid = row[1], row[2], row[3], row[4], row[5], row[6]
local max, floor, closed_for = row[7], row[8], row[9]
if not quorum and (keep_out or floor) then return {'foreign', floor and 'old' or 'alone'} end

-- The incarnation at this moment. Also without a promotion the replication id changes with the first replica that joins, and
-- some time after the last one left; then the second id is cleared, too.
local present = incarnation
local is_noted = replid and find(info, 'master_replid:' .. replid, 1, true)
if not is_noted then
  local run, orders, second = origin(info)
  local begin = run .. ':' .. orders .. ':'
  local is_same = incarnation and (second and incarnation == begin .. second or not second and sub(incarnation, 1, #begin) == begin)
  if not is_same then present = begin .. (second or '') end
end
local is_in = quorum and present == incarnation
