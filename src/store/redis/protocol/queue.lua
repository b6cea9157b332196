-- The queue of clients that wait for a name. Sent in front of the scripts that free or take a name, after grant.lua.
--
--   queue     sorted set: client -> the number that its place got when it joined: the server's microseconds, lifted above the
--             last place. It is negative while the place is vacant: then no claim waits there
--   waiting   hash: client -> '<ms> <term> <listens> <holder> <floor> <info>', the claim that waits; '<ms> <term>' while the
--             place is vacant. A place counts until these ms of the server's clock, and no longer than its term from now:
--             the clock may have been set back. It listens, '1', if its client hears of a grant at once
--
-- A holder whose lease can be renewed has no place: it is removed with the grant, and no claim joins while it has the lease.

-- Returns the queue of the name with these keys, as it is at `since`, which is now. Only a script that has to do with a queue
-- pays for its functions.
local function queue_of(keys, grant, since)
  local call, match = redis.call, string.match
  local lease, mark, queue, waiting, node = keys[1], keys[2], keys[3], keys[4], keys[5]
  local now, places = math.floor(since / 1000), {}

  -- Returns the ms for which a client's place still counts, 0 if it is over or there is none; and what is kept of it.
  local function look_up(client)
    local place = call('HGET', waiting, client) or ''
    local ends, term = match(place, '^(%d+) (%d+)')
    return ends and math.max(0, math.min(ends - now, term)) or 0, place
  end

  local function drop(client)
    call('ZREM', queue, client)
    call('HDEL', waiting, client)
  end

  -- Returns the first client behind this number whose place counts, its number, what is kept of it, and the ms that are left
  -- of it; nil: there is none. Drops those before it that are over, but no more than 1,024: false says that more may follow.
  local function next_behind(behind)
    for _ = 1, 1024 do
      local front = call('ZRANGE', queue, '(' .. behind, '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
      local client = front[1]
      if not client then return nil end
      local left, place = look_up(client)
      if left > 0 then return client, front[2], place, left end
      drop(client)
    end
    return false
  end

  -- Tells a client of the queue. Returns whether it may have heard it: a node of a cluster does not know who listens to the
  -- others, and a client that says that it does not listen polls by itself.
  local function tell(client, listens, message)
    return redis.pcall('PUBLISH', lease .. ':granted:' .. client, message) ~= 0 or not node or listens ~= '1'
  end

  -- Keeps the place of this holder's client, with this claim, for a term from now at least. A client that has none is put at
  -- the end, if it joins.
  function places.stay(holder, term, listens, floor, info, joins)
    local client = string.sub(holder, 1, 32)
    local number, left = call('ZSCORE', queue, client), 0
    if number then left = look_up(client) end
    if left == 0 and not joins then return end
    local last = left == 0 and call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    if left == 0 then
      number = tonumber(last or '0') < tonumber(since) and since or string.format('%.0f', last + 1)
    end
    local is_vacant = string.sub(number, 1, 1) == '-'
    if is_vacant then number = string.sub(number, 2) end
    local ends = string.format('%.0f', now + math.max(left, term))
    local claim = table.concat({ends, term, listens, holder, floor, info}, ' ')
    -- After a write that a full server accepts it accepts the others too: a place takes a few bytes, and a waiting client
    -- should not be turned away.
    call('ZREM', queue, '')
    -- Sets the expiry of keys that are new or do not live for long enough. It is also set before the first write: a user
    -- without that permission fails before there is a key that would stay for ever.
    local ms = call('PTTL', waiting) < term + 10000 and string.format('%.0f', term + 15000)
    if not ms and left == 0 and not last then ms = string.format('%.0f', term + 15000) end
    if ms then call('PEXPIRE', queue, ms) end
    if left == 0 or is_vacant then call('ZADD', queue, number, client) end
    if ms then call('PEXPIRE', queue, ms) end
    call('HSET', waiting, client, claim)
    if ms then call('PEXPIRE', waiting, ms) end
    -- Dead clients do not count before it: the next one checks as soon as the holder's time is over.
    if left > 0 and joins then next_behind('0') end
  end

  -- Returns the highest token that can have been granted so far, and the number of clients before this holder's.
  function places.standing(holder)
    local last = call('GET', mark) or ''
    local height = match(last, '^%d+$') and tonumber(last) > tonumber(since) and last or since
    return height, call('ZRANK', queue, string.sub(holder, 1, 32)) - call('ZCOUNT', queue, '-inf', '0')
  end

  -- Takes this holder's claim out of its client's place, which another caller of the client may take.
  function places.vacate(holder)
    local client = string.sub(holder, 1, 32)
    local times, claims = match(call('HGET', waiting, client) or '', '^(%d+ %d+) [01] (%S+) ')
    local number = claims == holder and call('ZSCORE', queue, client)
    if not number then return end
    call('ZREM', queue, '')
    call('ZADD', queue, '-' .. number, client)
    call('HSET', waiting, client, times)
    -- Each one takes two with it that are over, or a busy name would collect them.
    for _, oldest in ipairs(call('ZRANGE', queue, '0', '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', '2')) do
      if look_up(oldest) == 0 then drop(oldest) end
    end
  end

  -- Grants a name that nobody has to the first client of the queue, for what is left of its place, and tells it, unless this
  -- holder asks. A client that cannot have heard it keeps its place and is passed over. Returns the holder and the token;
  -- nil: no client waits; false: more places have to be checked.
  function places.grant_next(asking)
    local behind = '0'
    -- A full server hands the name over all the same.
    call('ZREM', queue, '')
    for _ = 1, 1024 do
      local client, number, place, left = next_behind(behind)
      if not client then
        if behind ~= '0' then call('DEL', lease) end
        return client
      end
      behind = number
      local listens, holder, floor, info = match(place, '^%d+ %d+ ([01]) (%S+) (%d+) (.*)$')
      local token = holder and grant(lease, mark, since, holder, floor, info, string.format('%.0f', left))
      -- A claim that is refused is told so when it asks again.
      if not token then drop(client)
      elseif holder == asking or tell(client, listens, holder .. ' ' .. token) then
        drop(client)
        return holder, token
      end
    end
    call('DEL', lease)
    return false
  end

  -- Makes the first client of the queue that can hear it poll the name.
  function places.have_looked()
    local behind = '0'
    for _ = 1, 1024 do
      local client, number, place = next_behind(behind)
      if not client or tell(client, match(place, '^%d+ %d+ ([01])'), 'look') then return end
      behind = number
    end
  end

  -- Frees a name: it is the next client's, or nobody's. A server that keeps out grants nothing here, because only a claim asks
  -- whether the server has its data: there the next client claims.
  function places.pass_on(keeps_out)
    if not keeps_out and places.grant_next() then return end
    call('DEL', lease)
    if keeps_out then places.have_looked() end
    redis.pcall('PUBLISH', lease .. ':freed', '0')
  end

  return places
end
