-- What a member does with requests for names: the functions `claim`, `renew`, `release` and `evict` of the protocol, in the same
-- order of cases.
--
-- KEYS   1 node, as node.lua has it, then lease and mark of each name, at most 256 names
-- ARGV   1 'claim', 'renew', 'release', 'evict' or 'inspect', or 'take_back' for a release that nobody waits for
--        2 '<quorum> <index> <of>'
--        then for each name '<holder> <token> <ttl in ms> <mark>', where the mark is the one that is told back by a client that
--        vouches for the lease, or nothing; and what the holder tells about itself, a JSON object
-- Reply  the answer for the name, or {'done', an answer for each name...} where there are several
--          'yes'                    the lease is there, or marked as evicted
--          'freed', 'not_held'      to a release
--          'free'                   to inspect
--          {'taken', ms left, value, clock in microseconds}
--          {'low', mark}            the name is free, and the token is not above the mark
--          {'too_long', ms}         the ttl is longer than the longest of the quorum, which is this one
--          {'failed', message}      nothing was changed for this name
--        'away'                     nothing was changed: it takes no part, or may take none. A read tells
--
-- A lease is a string with an expiry: 'held', 'evicted' or 'kept', then ' <holder> <token> <floor> <info>'.

local call, pcall, find, sub, match = redis.call, redis.pcall, string.find, string.sub, string.match
local node, what, of = KEYS[1], ARGV[1], ARGV[2]
local row = call('HMGET', node, 'member', 'keep_out', 'floor', 'max', 'closed_for', 'replid')
local member, floor, closed_for = row[1], row[3], row[5]
local is_it = member == of
local publishes = what == 'release'
if publishes or what == 'take_back' then
  -- It is carried out by a member that is away, too: what is left is freed, and a late claim is too low.
  if not member or not is_it and closed_for ~= match(of, '^%d+') then return 'away' end
  what = 'release'
else
  -- Redis 6.2 may be set to refuse writes after INFO without this; later servers ignore it.
  redis.replicate_commands()
  -- While a master has the replication id that was noted, the member is in.
  local info = is_it and not closed_for and pcall('INFO', 'replication')
  if type(info) ~= 'string' or not find(info, 'role:master', 1, true)
    or not find(info, 'master_replid:' .. row[6], 1, true) then return 'away' end
end

local longest, lowest, highest = tonumber(row[2]), tonumber(floor), tonumber(row[4])

-- tostring would give 1.79e+15.
local function digits(number)
  return string.format('%.0f', number)
end

local function taken(lease, value)
  local time = redis.call('TIME')
  return {'taken', redis.call('PTTL', lease), value, time[1] * 1000000 + time[2]}
end

local function answer(lease, mark, asked, facts)
  local holder, token, ttl, told = match(asked, '^(%x+%-%x+) ([1-9]%d*) (%d+) (%d*)$')
  local height, span = tonumber(token), tonumber(ttl)
  if not holder or #holder ~= 49 or height > 9007199254740991 or #ttl > 12 or #told > 16 or sub(facts, 1, 1) ~= '{'
    or span == 0 and (what == 'claim' or what == 'renew' or what == 'evict') then
    return {'failed', 'ERR an argument is invalid: ' .. sub(asked .. ' ' .. facts, 1, 200)}
  end
  local value = pcall('GET', lease)
  if type(value) == 'table' then return {'failed', value.err} end
  local held = 'held ' .. holder .. ' ' .. token .. ' ' .. floor .. ' '
  local is_held = value and sub(value, 1, #held) == held
  if what == 'claim' or what == 'renew' then
    if span > longest then return {'too_long', longest} end
    -- Nearly all renewals end here. They read neither the mark nor the parts of the lease.
    if is_held then
      -- No request shortens what is left of a lease.
      if call('PTTL', lease) < span then call('PEXPIRE', lease, ttl) end
      return 'yes'
    end
  end
  local state, by, number, under, noted = 'held', holder, token, floor, is_held and sub(value, #held + 1)
  if value and not is_held then
    state, by, number, under, noted = match(value, '^(%a+) ([^ ]+) (%d+) (%d+) ({.*)$')
    if not state then return {'failed', 'WRONGTYPE the key of the lease holds something else'} end
    -- A lease that was taken under another floor does not count: its holder brings it back. A kept name has no holder.
    if under ~= floor and state ~= 'kept' then value = nil end
    -- A holder's lease lasts no longer from now than the longest ttl: the clock was ahead when it was written.
    if value and what == 'claim' and state == 'held' and call('PTTL', lease) > longest then call('PEXPIRE', lease, row[2]) end
  end
  if what == 'inspect' then return value and taken(lease, value) or 'free' end

  local last = pcall('GET', mark) or '0'
  if type(last) == 'table' then return {'failed', last.err} end
  if not find(last, '^%d+$') then return {'failed', 'WRONGTYPE the mark of the slot is not a number'} end
  last = math.max(tonumber(last), lowest)
  local is_own = value and by == holder
  if what == 'evict' then
    if value and not (is_own and number == token) then return taken(lease, value) end
  elseif what ~= 'release' then
    -- What an older claim of this holder left bars neither its newer claim nor the renewals of that.
    local is_older = is_own and state == 'held' and (what == 'claim' or tonumber(number) < height)
    if value and not is_older then return taken(lease, value) end
    if height <= last and not (what == 'renew' and told == digits(last)) then return {'low', last} end
  end

  local is_freed = what == 'release' and is_own and state ~= 'kept' and tonumber(number) <= height
  -- A full server accepts these, and then all the rest. A claim it may refuse. A replica refuses all.
  local written = is_freed and pcall('DEL', lease) or what ~= 'claim' and pcall('HDEL', node, '-')
  if type(written) == 'table' then return find(written.err, 'READONLY', 1, true) and 'away' or written end
  -- The mark moves to the token, or by one where it is as high already.
  local moved = token
  if height <= last then
    height = last + 1
    moved = digits(height)
  end
  call('SET', mark, moved)
  if height > highest then
    -- A millisecond ahead, so that most releases and many claims need not write it.
    highest = height + 1000
    call('HSET', node, 'max', digits(highest))
  end
  if what == 'release' then
    if not is_freed then return 'not_held' end
    -- An evicted holder keeps nothing: the operator's decision wins.
    if ttl ~= '0' and state == 'held' then
      call('SET', lease, 'kept ' .. holder .. ' ' .. number .. ' ' .. floor .. ' ' .. noted, 'PX', ttl)
    end
    if publishes then pcall('PUBLISH', lease .. ':freed', '0') end
    return 'freed'
  end
  if what == 'evict' and value then
    ttl = digits(math.max(call('PTTL', lease), span))
    facts = noted
  end
  call('SET', lease, (what == 'evict' and 'evicted' .. sub(held, 5) or held) .. facts, 'PX', ttl)
  return 'yes'
end

local answers = {'done'}
for i = 2, #KEYS, 2 do
  answers[#answers + 1] = answer(KEYS[i], KEYS[i + 1], ARGV[i + 1], ARGV[i + 2])
end
-- An array around it would cost the server a microsecond.
return answers[3] and answers or answers[2]
