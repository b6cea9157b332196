-- The line of clients that wait for a name in turn. Sent in front of the scripts that free or take a name.
--
--   queue   sorted set: client -> place, one more than the last one's; no clock
--   alive   hash: client -> the server's ms until which it counts as alive; '!offered' -> who has an unanswered offer
--   offer   a lease hash with the one field 'offer' = client: kept free for a claim of that client; no token, no holder
--
-- Both keys get an expiry with every write that could make them. An offer that ran out unanswered makes its client count
-- as dead at once, so a dead client costs one offer, whatever the clock says.

local function line_of(lease, queue, alive, now, offer_ms, publish)
  local line = {}

  local function keep(key, ms)
    if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, string.format('%.0f', ms)) end
  end

  -- Puts a client at the end, unless it stands in line, and lets it count as alive.
  function line.join(client, patience)
    -- After a write that a full server accepts it accepts the others too: a place is a few bytes, and who waits is not to
    -- be sent away.
    redis.call('ZREM', queue, '')
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    redis.call('ZADD', queue, 'NX', string.format('%.0f', (last[2] or 0) + 1), client)
    keep(queue, patience + 10000)
    redis.call('HSET', alive, client, string.format('%.0f', now + patience))
    keep(alive, patience + 10000)
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
    redis.call('HSET', lease, 'offer', client)
    redis.call('PEXPIRE', lease, offer_ms)
    redis.call('HSET', alive, '!offered', client)
    keep(alive, 2 * offer_ms)
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
