-- What a server keeps of itself: whether it still has its data. Sent in front of acquire.lua, after queue.lua.
--
-- The key is a hash without expiry. If it is missing, or names another run of the server, data may be lost: then nothing
-- is granted until everything that may be forgotten is over, which takes no longer than the longest ttl.
--   run        the run id of the server when it last noted a loss, as INFO tells it
--   ready      from when it grants, by its clock in microseconds
--   keep_out   the longest ttl in ms, the same for all clients
--   floor      only on a member of a quorum, which is not used alone

-- Returns the reply to a claim that is refused; nil and the ms for which the server still keeps out; or nothing if it takes
-- the claim. The longest ttl of a client that creates no key is '0'; a client that met no key names the run ''.
local function refusal_of(node, run, max_ttl, ttl)
  local known = redis.call('HMGET', node, 'run', 'ready', 'keep_out', 'floor')
  if known[4] then return 'member' end
  if not known[1] and max_ttl == '0' then return end
  if run == '' then return 'run' end
  local longest = known[3] or max_ttl
  if max_ttl ~= '0' and longest ~= max_ttl then return {'mismatch', longest, max_ttl} end
  if tonumber(ttl) > tonumber(longest) then return {'too_long', ttl, longest} end
  redis.replicate_commands()
  local time = redis.call('TIME')
  local now, ready = time[1] * 1000000 + time[2], tonumber(known[2] or '0')
  if known[1] ~= run then
    -- A hundredth more, because the holders' clocks may be slower.
    ready = now + longest * 1010 + 2000
    redis.call('HSET', node, 'run', run, 'ready', string.format('%.0f', ready), 'keep_out', longest)
  end
  if ready > now then return nil, math.ceil((ready - now) / 1000) end
end
