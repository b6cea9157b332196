-- What a member does with requests for names: the functions `claim`, `renew`, `release` and `evict` of the protocol, in the same
-- order of cases.
--
-- KEYS   1 node, then lease and mark of each name, at most 256 names
-- ARGV   1 'claim', 'renew', 'release', 'evict' or 'inspect'   2 quorum   3 index   4 number of members
--        5 publish command, or '' to publish nothing
--        then for each name, except to inspect: holder, token, ttl in ms, info (a JSON object or ''), and the mark that is told
--        back by a client that vouches for the lease, or ''
-- Reply  the answer for the name, or {'done', an answer for each name...} where there are several
--          'yes'                    the lease is there, or marked as evicted
--          'freed', 'not_held'      to a release
--          'free'                   to inspect
--          {'taken', ms left, value, clock in microseconds}
--          {'low', mark}            the name is free, and the token is not above the mark
--          {'too_long', ms}         the ttl is longer than the longest of the quorum, which is this one
--          {'failed', message}      nothing was changed for this name
--        {'out', incarnation, first seen, clock}    and the next four: nothing was changed
--        {'other', quorum, index, number, members}    it is no member, or another one
--        {'closed', quorum}                         its quorum was closed for that one
--        {'foreign', 'alone' or 'old'}              a server that grants leases alone, or a member of the first kind
--        {'invalid', argument, value}
--
-- A lease is a string with an expiry: 'held', 'evicted' or 'kept', then ' <holder> <token> <floor> <info>'.

local what, publish, count = ARGV[1], ARGV[5], (#KEYS - 1) / 2
if what == 'inspect' then
  if #ARGV ~= 5 then return {'invalid', 'arguments', tostring(#ARGV)} end
elseif #ARGV ~= 5 + 5 * count then
  return {'invalid', 'arguments', tostring(#ARGV)}
else
  for i = 1, count do
    local holder, token, ttl, about, told = ARGV[5 * i + 1], ARGV[5 * i + 2], ARGV[5 * i + 3], ARGV[5 * i + 4], ARGV[5 * i + 5]
    if #holder ~= 49 or sub(holder, 33, 33) ~= '-' or find(holder, '[^%x-]') then return {'invalid', 'holder', holder} end
    if #token > 16 or not find(token, '^[1-9]%d*$') or tonumber(token) > 9007199254740991 then return {'invalid', 'token', token} end
    if #ttl > 12 or not find(ttl, '^%d+$') or ttl == '0' and what ~= 'release' then return {'invalid', 'ttl', ttl} end
    if about ~= '' and not find(about, '^{".*}$') then return {'invalid', 'info', about} end
    if told ~= '' and (#told > 16 or not find(told, '^%d+$')) then return {'invalid', 'mark', told} end
  end
end

-- A member that takes no part in this. One that was closed for the quorum that is asked is a member of it that is out.
local is_it = quorum == ARGV[2] and index == ARGV[3] and of == ARGV[4]
local absent
if is_it and closed_for then
  absent = {'closed', closed_for}
elseif quorum and not is_it and closed_for ~= ARGV[2] then
  return {'other', quorum, index, of, call('HMGET', node, 'members')[1]}
elseif not (is_it and is_in) then
  local clock = tonumber(clock_us())
  absent = {'out', present, see(present, clock, not quorum and ARGV[2]), clock}
end
-- Only a release is carried out all the same: what is left is freed, and a late claim is too low.
if absent and (what ~= 'release' or not quorum) then return absent end
-- A full server accepts this, and then all the rest. A claim it may refuse.
if what ~= 'claim' and what ~= 'inspect' then call('HDEL', node, '-') end
if is_in and not is_noted then pcall('HSET', node, 'replid', match(info, 'master_replid:(%x+)')) end

local longest, lowest, highest = tonumber(keep_out), tonumber(floor), tonumber(max)

local function taken(lease, value)
  return {'taken', redis.call('PTTL', lease), value, clock_us()}
end

local function answer(lease, mark, holder, token, ttl, about, told)
  local value = pcall('GET', lease)
  if type(value) == 'table' then return {'failed', value.err} end
  if what == 'claim' or what == 'renew' then
    if tonumber(ttl) > longest then return {'too_long', longest} end
    -- Nearly all renewals end here. They read neither the mark nor the parts of the lease.
    if value and find(value, 'held ' .. holder .. ' ' .. token .. ' ' .. floor .. ' ', 1, true) == 1 then
      -- No request shortens what is left of a lease.
      if call('PTTL', lease) < tonumber(ttl) then call('PEXPIRE', lease, ttl) end
      return 'yes'
    end
  end
  local state, by, number, under, facts
  if value then
    state, by, number, under, facts = match(value, '^(%a+) ([^ ]+) (%d+) (%d+) ({.*)$')
    if not state then return {'failed', 'WRONGTYPE the key of the lease holds something else'} end
    -- A lease that was taken under another floor does not count.
    if under ~= floor then value = nil end
  end
  if what == 'inspect' then return value and taken(lease, value) or 'free' end

  local last = pcall('GET', mark) or '0'
  if type(last) == 'table' then return {'failed', last.err} end
  if not find(last, '^%d+$') then return {'failed', 'WRONGTYPE the mark of the slot is not a number'} end
  last = math.max(tonumber(last), lowest)
  local height, is_own = tonumber(token), value and by == holder
  if what == 'evict' then
    if value and not (is_own and number == token) then return taken(lease, value) end
  elseif what ~= 'release' then
    -- What an older claim of this holder left bars neither its newer claim nor the renewals of that.
    local is_older = is_own and state == 'held' and (what == 'claim' or tonumber(number) < height)
    if value and not is_older then return taken(lease, value) end
    if height <= last and not (what == 'renew' and told == digits(last)) then return {'low', last} end
  end

  -- The mark moves to the token, or by one where it is as high already.
  local moved = token
  if height <= last then
    height = last + 1
    moved = digits(height)
  end
  call('SET', mark, moved)
  if height > highest then
    highest = height
    call('HSET', node, 'max', moved)
  end
  if what == 'release' then
    if not is_own or state == 'kept' or tonumber(number) > tonumber(token) then return 'not_held' end
    -- An evicted holder keeps nothing: the operator's decision wins.
    if ttl == '0' or state ~= 'held' then call('DEL', lease)
    else call('SET', lease, 'kept ' .. holder .. ' ' .. number .. ' ' .. floor .. ' ' .. facts, 'PX', ttl) end
    if publish ~= '' then pcall(publish, lease .. ':freed', '0') end
    return 'freed'
  end
  if what == 'evict' and value then
    ttl = digits(math.max(call('PTTL', lease), tonumber(ttl)))
  else
    -- What the holder tells about itself, with the time of this moment.
    facts = '{"since":' .. clock_us() .. (about == '' and '}' or ',' .. sub(about, 2))
  end
  state = what == 'evict' and 'evicted ' or 'held '
  call('SET', lease, state .. holder .. ' ' .. token .. ' ' .. floor .. ' ' .. facts, 'PX', ttl)
  return 'yes'
end

local answers = {'done'}
for i = 1, count do
  local at = 5 * i
  answers[i + 1] = answer(KEYS[2 * i], KEYS[2 * i + 1], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
end
-- An array around it would cost the server a microsecond.
return count == 1 and answers[2] or answers
