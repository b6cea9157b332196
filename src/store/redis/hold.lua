-- Takes the token that a holder proposes for a name, or refuses it, on a member of a quorum. The member takes exactly this
-- token or none: two majorities share a member, so no token is granted twice.
--
-- KEYS   1 lease   2 counter   3 node
-- ARGV   1 holder   2 ttl in ms   3 'claim', or 'repair' for a lease that a majority has confirmed and this member lacks
--        4 token   5 info, a JSON object with at least one member   6 run id, as it was read on this connection
--        7 longest ttl of the quorum's clients in ms   8 1 if every write is on disk before it is answered, otherwise 0
-- Reply  'granted <token> <clock>'       also when the holder asks again: its token, and the full ttl again
--        {'held', ms left, value, clock} the value of the lease; -1 ms left: it has no expiry
--        'low <floor> <floor of the server, or 0> <clock>'    the name is free, and a token above the floor would be taken
--        'ahead <clock>'                 the token is more than two hours in front of the clock
--        'away <microseconds> <clock>'   the server came back without its data and takes no claim for so long
--        'mismatch <ms>'                 the other clients have this longest ttl: nothing was changed
--        'alone'                         the server grants leases on its own: nothing was changed
--        {'invalid', argument, value}    nothing was changed
--        A clock is the server's, in microseconds since 1970.
--
--   counter   hash: token   the highest token that was taken and not taken back, the last one apart; missing if there
--                           is none, so that nothing is left once the last one is taken back
--                   by      '<holder> <token>' that took it; missing once that holder released the name
--                   try     the last token that was taken; it counts as much as `token` until it is taken back
--                   trier   the holder that took it; missing once that holder released the name
--   node      hash without expiry: its absence, or another run than the last one, shows that data was lost
--                   run        the run id of the server
--                   ready      from when it takes claims
--                   floor      it takes only tokens above this one
--                   keep_out   the longest ttl in ms, the same for all clients

local lease, counter, node = KEYS[1], KEYS[2], KEYS[3]
local holder, ttl, mode, token, info = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local run, longest, is_trusted = ARGV[6], ARGV[7], ARGV[8] == '1'

-- All arguments are checked before the first write, and numbers as text.
if #longest > 12 or not find(longest, '^[1-9]%d*$') then return {'invalid', 'max_ttl', longest} end
if #ttl > 12 or not find(ttl, '^[1-9]%d*$') or tonumber(ttl) > tonumber(longest) then return {'invalid', 'ttl', ttl} end
if mode ~= 'claim' and mode ~= 'repair' then return {'invalid', 'mode', mode} end
if #token > 16 or not find(token, '^[1-9]%d*$') or tonumber(token) > 9007199254740991 then return {'invalid', 'token', token} end
if #holder ~= 49 or sub(holder, 33, 33) ~= '-' or find(holder, ' ', 1, true) then return {'invalid', 'holder', holder} end
if sub(info, 1, 2) ~= '{"' or sub(info, -1) ~= '}' then return {'invalid', 'info', info} end
if not find(run, '^%x+$') then return {'invalid', 'run', run} end

local proposed = tonumber(token)
-- Redis 6.2 may be set to refuse writes after TIME without this; later servers ignore it.
redis.replicate_commands()
local time = call('TIME')
local clock = time[1] .. sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(clock)
-- tostring would give 1.79e+15.
local function digits(number) return string.format('%.0f', number) end

-- First the server itself: whether it still has its data.
local known = call('HMGET', node, 'run', 'ready', 'floor', 'keep_out')
local last_run, ready, least = known[1], tonumber(known[2] or 'x'), tonumber(known[3] or 'x')
if last_run and not least then return 'alone' end
if last_run and known[4] ~= longest then return 'mismatch ' .. tostring(known[4]) end
if not last_run or last_run ~= run and not is_trusted then
  -- Until then everything is over that it may have granted; a hundredth more, because the holders' clocks may be slower.
  -- Two hours is how far in front of its clock it may have taken tokens.
  ready, least = now + longest * 1010 + 2000, now + 7200000000
  call('HSET', node, 'run', run, 'ready', digits(ready), 'floor', digits(least), 'keep_out', longest)
elseif last_run ~= run then
  call('HSET', node, 'run', run)
end
if ready > now then return 'away ' .. digits(ready - now) .. ' ' .. clock end
if proposed > now + 7200000000 then return 'ahead ' .. clock end

-- Then the lease.
local value = call('GET', lease)
if value then
  if not is_lease(value) then return redis.error_reply(FOREIGN) end
  if sub(value, 1, 49) ~= holder then return {'held', call('PTTL', lease), value, clock} end
  local own = string.match(value, '^%d+', 51)
  if tonumber(own) >= proposed then
    call('PEXPIRE', lease, ttl)
    return 'granted ' .. own .. ' ' .. clock
  end
end

-- Then the tokens that were taken.
local taken = call('HMGET', counter, 'token', 'by', 'try', 'trier')
local last, by, me = tonumber(taken[1] or 'x'), taken[2], holder .. ' ' .. token
if taken[3] then
  last = math.max(last or 0, tonumber(taken[3]))
  by = taken[4] and taken[4] .. ' ' .. taken[3]
end
local is_again = by == me
local takes
if mode == 'repair' then takes = proposed > (last or 0) or is_again
else takes = proposed > math.max(last or now, least) or is_again and proposed > least end
if not takes then return 'low ' .. digits(math.max(last or now, least)) .. ' ' .. digits(least) .. ' ' .. clock end

-- The first write changes nothing, but a full server refuses it: then nothing is half done. After it, or any other write,
-- the server would accept them all.
call('SET', lease, value or '', 'XX', 'KEEPTTL')
-- The counter is kept for an hour after the clock has passed its tokens. Its expiry is set before it, too: a user without
-- that permission fails before there is a key that would stay for ever.
local was = last or mode == 'repair' and now
local kept = digits(3600000 + math.max(0, math.ceil((math.max(was or 0, proposed) - now) / 1000)))
local is_new = call('PEXPIRE', counter, kept) == 0
if is_again or not was then call('HSET', counter, 'try', token, 'trier', holder)
else call('HSET', counter, 'token', digits(was), 'by', by or '', 'try', token, 'trier', holder) end
if is_new then call('PEXPIRE', counter, kept) end
call('SET', lease, me .. ' {"since":' .. clock .. ',' .. sub(info, 2), 'PX', ttl)
return 'granted ' .. token .. ' ' .. clock
