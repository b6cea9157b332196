-- Takes a name, or says who has it. Where clients wait in line, only the first of them gets it.
--
-- KEYS   1 lease hash   2 token counter   3 queue   4 alive
-- ARGV   1 holder   2 ttl in ms   3 floor under the token, 0 for none   4 info, a JSON object of one member or more
--        5 token memory in ms
--        and from those who wait in line:
--        6 client   7 patience in ms: for how long the client counts as alive   8 how many more of its waiters there are:
--        with any, it joins the line again behind the others   9 ms for which the name is offered to the first in line
--        10 publish command
-- Reply  {'granted', token}               to the holder that asks again as well: its token, and the full ttl anew
--        {'held', ms left, {field, value, ...}}      the hash as it stands; -1 ms left: it has no expiry
--        {'queued', ms left, {field, value, ...}, clients before it}      the same to one that waits in line
--        {'invalid', argument, value, server's microseconds}      nothing was changed
--        {'broken', 'counter', value}                              nothing was changed

local lease, counter, queue, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, ttl, floor, info, memory = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local client, patience, more = ARGV[6], ARGV[7], ARGV[8]
local offer_ms, publish = ARGV[9] or '2000', ARGV[10] or 'PUBLISH'
local find = string.find

-- Numbers are looked at before the first write, as text: an expiry that fails after HSET would leave a lease for ever.
if #ttl > 15 or not find(ttl, '^[1-9]%d*$') then return {'invalid', 'ttl', ttl, '0'} end
if #memory > 15 or not find(memory, '^[1-9]%d*$') then return {'invalid', 'memory', memory, '0'} end
if not find(floor, '^%d+$') then return {'invalid', 'floor', floor, '0'} end
-- The dash is what tells a holder from the other fields.
if not find(holder, '^%x+%-%x+$') then return {'invalid', 'holder', holder, '0'} end
if not find(info, '^{".*}$') then return {'invalid', 'info', info, '0'} end
if client then
  if not find(client, '^%x+$') then return {'invalid', 'client', client, '0'} end
  if #patience > 9 or not find(patience, '^[1-9]%d*$') then return {'invalid', 'patience', patience, '0'} end
  if #more > 9 or not find(more, '^%d+$') then return {'invalid', 'more', more, '0'} end
  if #offer_ms > 9 or not find(offer_ms, '^[1-9]%d*$') then return {'invalid', 'offer', offer_ms, '0'} end
end

local is_offered
local left = redis.call('PTTL', lease)
if left ~= -2 then
  -- Raises WRONGTYPE where the key is somebody else's.
  local fields = redis.call('HGETALL', lease)
  local is_mine, token
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == 'token' then token = fields[i + 1]
    elseif field == holder then is_mine = fields[i + 1] == '1'
    elseif field == 'offer' then is_offered = fields[i + 1] == client end
  end
  if is_mine and token then
    redis.call('PEXPIRE', lease, ttl)
    return {'granted', token}
  end
  if not client then return {'held', left, fields} end
end

-- Redis 6.2 may be set to refuse writes after TIME without this; later servers ignore it.
redis.replicate_commands()
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local since = string.format('%.0f', now)
local line

if not is_offered and (left ~= -2 or redis.call('EXISTS', queue, alive) > 0) then
  line = line_of(lease, queue, alive, math.floor(now / 1000), offer_ms, publish)
  local first = false
  if left == -2 then
    first = line.first()
    if first and first ~= client then line.offer(first) end
  end
  if first ~= nil and (not first or first ~= client) then
    -- Not there at all: more of the dead are to be dropped, and the next to ask goes on at once.
    left = math.max(redis.call('PTTL', lease), left == -1 and -1 or 0)
    local fields = redis.call('HGETALL', lease)
    if not client then return {'held', left, fields} end
    line.join(client, patience)
    -- The dead are not before it: who is next looks as soon as the holder's time is over.
    line.head()
    return {'queued', left, fields, redis.call('ZRANK', queue, client)}
  end
end

local last = redis.call('GET', counter) or '0'
if not find(last, '^%d+$') then return {'broken', 'counter', string.sub(last, 1, 64)} end
-- More than a day ahead is taken for a mistake, because it would stay.
if tonumber(floor) > now + 86400000000 then return {'invalid', 'floor', floor, since} end
local token = math.max(last + 1, now, floor + 1)
if token > 9007199254740989 then return {'broken', 'counter', string.sub(last, 1, 64)} end
-- tostring would write 1.79e+15.
token = token == now and since or string.format('%.0f', token)
if tonumber(memory) < tonumber(ttl) then memory = ttl end

-- The counter is the first write, and one that a full server refuses: then nothing is half done.
redis.call('SET', counter, token, 'PX', memory)
if client and (is_offered or line or tonumber(more) > 0) then
  line = line or line_of(lease, queue, alive, math.floor(now / 1000), offer_ms, publish)
  line.leave(client)
  line.close_offer(client)
  -- An offer must not outlive its acceptance, or the next claim of this client would be granted beside this one.
  if is_offered then redis.call('DEL', lease) end
end
redis.call('HSET', lease, holder, '1', 'token', token, 'info', '{"since":' .. since .. ',' .. string.sub(info, 2))
redis.call('PEXPIRE', lease, ttl)
if client and tonumber(more) > 0 then line.join(client, patience) end
return {'granted', token}
