-- The clock of the server, and the grant of a name by it. Sent after lease.lua, in front of the scripts that free or take a
-- name.

-- Returns the server's microseconds since 1970, as text. Redis 6.2 may be set to refuse writes after TIME without the first
-- line; later servers ignore it.
local function clock()
  redis.replicate_commands()
  local time = redis.call('TIME')
  -- Joined as text: formatting numbers costs a tenth of a grant.
  return time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
end

-- Grants the name to this holder for this many ms from `since`, which is now. Returns the token; or nothing, and the reply of
-- a refusal, which has changed nothing.
local function grant(lease, mark, since, holder, floor, info, ms)
  local call, find, format = redis.call, string.find, string.format
  local now, token = tonumber(since), since
  local height = now
  if floor ~= '0' and tonumber(floor) >= now then
    -- A floor more than a day ahead is taken for a mistake, because its effect would be permanent. One that the mark has
    -- reached has no effect.
    local last = tonumber(floor) > now + 86400000000 and (call('GET', mark) or '0')
    if last and find(last, '^%d+$') and tonumber(last) < tonumber(floor) then return nil, {'invalid', 'floor', floor, since} end
    if not last then
      height = floor + 1
      -- tostring would give 1.79e+15.
      token = format('%.0f', height)
    end
  end
  if height > 9007199254740989 then return nil, {'broken', 'mark', since} end
  -- The mark is the first write, and one that a full server refuses: then nothing is half done. It is nearly always below
  -- the clock, so it is replaced in one command, and corrected if it was not.
  local last = call('SET', mark, token, 'GET')
  if last then
    local above = find(last, '^%d+$') and last + 1 or math.huge
    if above > 9007199254740989 then
      call('SET', mark, last)
      return nil, {'broken', 'mark', string.sub(last, 1, 64)}
    end
    if above > height then
      token = format('%.0f', above)
      call('SET', mark, token)
    end
  end
  if token ~= since then info = '{"since":' .. since .. ',' .. string.sub(info, 2) end
  -- One write sets the lease and its expiry.
  call('SET', lease, holder .. ' ' .. token .. ' ' .. info, 'PX', ms)
  return token
end
