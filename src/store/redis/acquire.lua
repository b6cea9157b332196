-- Takes a name, or says who has it.
--
-- KEYS   1 lease hash   2 token counter
-- ARGV   1 holder   2 ttl in ms   3 floor under the token, 0 for none   4 info, a JSON object of one member or more
--        5 token memory in ms
-- Reply  {'granted', token}               to the holder that asks again as well: its token, and the full ttl anew
--        {'held', ms left, {field, value, ...}}      the hash as it stands; -1 ms left: it has no expiry
--        {'invalid', argument, value, server's microseconds}      nothing was changed
--        {'broken', 'counter', value}                              nothing was changed

local lease, counter = KEYS[1], KEYS[2]
local holder, ttl, floor, info, memory = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local find = string.find

-- Numbers are looked at before the first write, as text: an expiry that fails after HSET would leave a lease for ever.
if #ttl > 15 or not find(ttl, '^[1-9]%d*$') then return {'invalid', 'ttl', ttl, '0'} end
if #memory > 15 or not find(memory, '^[1-9]%d*$') then return {'invalid', 'memory', memory, '0'} end
if not find(floor, '^%d+$') then return {'invalid', 'floor', floor, '0'} end
-- The dash is what tells a holder from the other fields.
if not find(holder, '^%x+%-%x+$') then return {'invalid', 'holder', holder, '0'} end
if not find(info, '^{".*}$') then return {'invalid', 'info', info, '0'} end

local left = redis.call('PTTL', lease)
if left ~= -2 then
  -- Raises WRONGTYPE where the key is somebody else's.
  local fields = redis.call('HGETALL', lease)
  local is_mine, token
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == 'token' then token = fields[i + 1]
    elseif field == holder then is_mine = fields[i + 1] == '1' end
  end
  if is_mine and token then
    redis.call('PEXPIRE', lease, ttl)
    return {'granted', token}
  end
  return {'held', left, fields}
end

-- Redis 6.2 may be set to refuse writes after TIME without this; later servers ignore it.
redis.replicate_commands()
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local since = string.format('%.0f', now)

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
redis.call('HSET', lease, holder, '1', 'token', token, 'info', '{"since":' .. since .. ',' .. string.sub(info, 2))
redis.call('PEXPIRE', lease, ttl)
return {'granted', token}
