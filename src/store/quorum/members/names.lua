-- What a member does with requests for names: the functions `claim`, `renew`, `release` and `evict` of the protocol, in the same
-- order of cases.
--
-- KEYS   1 node, then lease and mark of each name, at most 256 names
-- ARGV   1 'claim', 'renew', 'release', 'evict' or 'inspect'   2 quorum   3 index   4 number of members
--        5 publish command, or '' to publish nothing
--        then for each name, except to inspect: holder, token, ttl in ms, info (a JSON object or ''), and the mark that is told
--        back by a client that vouches for the lease, or ''
-- Reply  {'done', clock in microseconds, an answer for each name...}
--          'yes'                    the lease is there, or marked as evicted
--          'freed', 'not_held'      to a release
--          'free'                   to inspect
--          {'taken', ms left, value}
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
    if #holder ~= 49 or not find(holder, '^%x+%-%x+$') then return {'invalid', 'holder', holder} end
    if #token > 16 or not find(token, '^[1-9]%d*$') or tonumber(token) > 9007199254740991 then return {'invalid', 'token', token} end
    if #ttl > 12 or not find(ttl, '^%d+$') or ttl == '0' and what ~= 'release' then return {'invalid', 'ttl', ttl} end
    if about ~= '' and not (sub(about, 1, 2) == '{"' and sub(about, -1) == '}') then return {'invalid', 'info', about} end
    if told ~= '' and (#told > 16 or not find(told, '^%d+$')) then return {'invalid', 'mark', told} end
  end
end

-- Only a release is carried out by a member that is out or closed: what is left there is freed, and a late claim is too low.
local absent = absence(ARGV[2], ARGV[3], ARGV[4])
if absent and (what ~= 'release' or not quorum or absent[1] == 'other') then return absent end
-- A full server accepts this, and then all the rest. A claim it may refuse.
if what ~= 'claim' and what ~= 'inspect' then call('HDEL', node, '-') end
if is_in and not find(info, 'master_replid:' .. replid, 1, true) then
  pcall('HSET', node, 'replid', match(info, 'master_replid:(%x+)'))
end

-- Returns the lease, unless it was taken under another floor; or nothing, and the error.
local function lease_of(key)
  local value = pcall('GET', key)
  if not value then return end
  if type(value) == 'table' then return nil, value.err end
  local state, holder, token, under, about = match(value, '^(%a+) (%x+%-%x+) (%d+) (%d+) ({.*)$')
  if not state then return nil, 'WRONGTYPE the key of the lease holds something else' end
  if under ~= floor then return end
  return {state = state, holder = holder, token = token, about = about, value = value}
end

-- Moves the mark to the token, or by one where it is as high already.
local function move(mark, last, token)
  local moved = math.max(tonumber(token), last + 1)
  call('SET', mark, digits(moved))
  if moved > tonumber(max) then
    max = digits(moved)
    call('HSET', node, 'max', max)
  end
end

local function put(lease, state, holder, token, about, ttl)
  call('SET', lease, state .. ' ' .. holder .. ' ' .. token .. ' ' .. floor .. ' ' .. about, 'PX', ttl)
end

-- What the holder tells about itself, with the time of this moment.
local function with_time(about)
  return '{"since":' .. digits(clock) .. (about == '' and '}' or ',' .. sub(about, 2))
end

local function taken(lease, found)
  return {'taken', call('PTTL', lease), found.value}
end

-- No request shortens what is left of a lease.
local function extend(lease, ttl)
  if call('PTTL', lease) < tonumber(ttl) then call('PEXPIRE', lease, ttl) end
  return 'yes'
end

local function answer(lease, mark, last, found, holder, token, ttl, about, told)
  local is_it = found and found.holder == holder and found.token == token
  if what == 'release' then
    local is_freed = found and found.holder == holder and tonumber(found.token) <= tonumber(token) and found.state ~= 'kept'
    move(mark, last, token)
    if not is_freed then return 'not_held' end
    -- An evicted holder keeps nothing: the operator's decision wins.
    if ttl ~= '0' and found.state == 'held' then put(lease, 'kept', holder, found.token, found.about, ttl)
    else call('DEL', lease) end
    if publish ~= '' then redis.pcall(publish, lease .. ':freed', '0') end
    return 'freed'
  end
  if what == 'evict' then
    if found and not is_it then return taken(lease, found) end
    local left = found and call('PTTL', lease) or 0
    move(mark, last, token)
    put(lease, 'evicted', holder, token, found and found.about or with_time(about), digits(math.max(left, tonumber(ttl))))
    return 'yes'
  end
  if tonumber(ttl) > tonumber(keep_out) then return {'too_long', tonumber(keep_out)} end
  if is_it and found.state == 'held' then return extend(lease, ttl) end
  -- What an older claim of this holder left bars neither its newer claim nor the renewals of that.
  local is_own = found and found.holder == holder and found.state == 'held'
  if found and not (is_own and (what == 'claim' or tonumber(found.token) < tonumber(token))) then return taken(lease, found) end
  if tonumber(token) <= last and not (what == 'renew' and told == digits(last)) then return {'low', last} end
  move(mark, last, token)
  put(lease, 'held', holder, token, with_time(about), ttl)
  return 'yes'
end

local answers = {'done', clock}
for i = 1, count do
  local lease, mark = KEYS[2 * i], KEYS[2 * i + 1]
  local found, failure = lease_of(lease)
  local last = not failure and pcall('GET', mark) or '0'
  if type(last) == 'table' then failure = last.err
  elseif not find(last, '^%d+$') then failure = 'WRONGTYPE the mark of the slot is not a number' end
  if failure then
    answers[i + 2] = {'failed', failure}
  elseif what == 'inspect' then
    answers[i + 2] = found and taken(lease, found) or 'free'
  else
    local at = 5 * i
    answers[i + 2] = answer(lease, mark, math.max(tonumber(last), tonumber(floor)), found, ARGV[at + 1], ARGV[at + 2],
      ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  end
end
return answers
