-- The line of clients that wait for a name in turn. Sent in front of the scripts that free or take a name, after
-- lease.lua.
--
--   queue   sorted set: client -> place, one more than the last one's; no clock
--   alive   hash: client -> the server's ms until which it counts as alive; '!offered' -> who has an unanswered offer
--
-- Each key gets an expiry with every write that could make it. An offer that ran out unanswered makes its client count
-- as dead at once, so a dead client costs one offer, whatever the clock says.

-- The server's clock in ms. Redis 6.2 may be set to refuse writes after TIME without the first line; later servers ignore
-- it.
local function now_ms()
  redis.replicate_commands()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function line_of(lease, queue, alive, now, offer_ms, publish)
  local line = {}

  -- Writes to a key, which then lives for so long at least. Its expiry comes first: a user who may not set one fails
  -- before there is a key that would stay for ever.
  local function write(key, ms, command, ...)
    local expiry, is_new = string.format('%.0f', ms), false
    if redis.call('PTTL', key) < ms then is_new = redis.call('PEXPIRE', key, expiry) == 0 end
    redis.call(command, key, ...)
    if is_new then redis.call('PEXPIRE', key, expiry) end
  end

  -- Puts a client at the end, unless it stands in line, and lets it count as alive.
  function line.join(client, patience)
    -- After a write that a full server accepts it accepts the others too: a place is a few bytes, and who waits is not to
    -- be sent away.
    redis.call('ZREM', queue, '')
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    write(queue, patience + 10000, 'ZADD', 'NX', string.format('%.0f', (last[2] or 0) + 1), client)
    write(alive, patience + 10000, 'HSET', client, string.format('%.0f', now + patience))
  end

  function line.leave(client)
    redis.call('ZREM', queue, client)
    redis.call('HDEL', alive, client)
  end

  -- Ends the offer that this client had, answered or not.
  function line.close_offer(client)
    if redis.call('HGET', alive, '!offered') == client then redis.call('HDEL', alive, '!offered') end
  end

  -- The first client that counts as alive; nil: the line is empty. Drops the dead before it, but no more than 64: false
  -- says that more may follow.
  function line.head()
    for _ = 1, 64 do
      local head = redis.call('ZRANGE', queue, 0, 0)[1]
      if not head then return nil end
      if tonumber(redis.call('HGET', alive, head) or '0') > now then return head end
      line.leave(head)
    end
    return false
  end

  -- Who is to have the name, of which there is no lease and no offer: as above.
  function line.first()
    local lapsed = redis.call('HGET', alive, '!offered')
    if lapsed then
      line.leave(lapsed)
      redis.call('HDEL', alive, '!offered')
    end
    local head = line.head()
    if head == nil then redis.call('DEL', alive) end
    return head
  end

  -- Tells the first in line for how long the name is kept for another.
  function line.warn(ms)
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if head then redis.pcall(publish, lease .. ':turn:' .. head, 'next ' .. ms) end
  end

  -- Keeps the name free for this client's claim, and tells it, and the one behind it for when to look.
  function line.offer(client)
    redis.call('ZREM', queue, client)
    redis.call('SET', lease, 'offer ' .. client, 'PX', offer_ms)
    write(alive, 2 * offer_ms, 'HSET', '!offered', client)
    redis.pcall(publish, lease .. ':turn:' .. client, 'turn')
    line.warn(offer_ms)
  end

  -- Offers a name that was just freed to the first in line; to everybody, if there is none.
  function line.pass_on()
    local head = line.first()
    if head then line.offer(head) else redis.pcall(publish, lease .. ':freed', '0') end
  end

  return line
end
