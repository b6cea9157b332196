-- The queue of clients that wait for a name in turn. Sent in front of the scripts that free or take a name, after
-- lease.lua.
--
--   queue   sorted set: client -> place, one more than that of the last client; no clock
--   alive   hash: client -> the server's ms until which it counts as alive
--
-- Each key gets an expiry with every write that could create it. A client with an offer is in neither of them, so a
-- dead client costs one offer, whatever the clock says.

-- The server's clock in ms. Redis 6.2 may be set to refuse writes after TIME without the first line; later servers
-- ignore it.
local function now_ms()
  redis.replicate_commands()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function queue_of(lease, queue, alive, now, offer_ms, publish)
  local waiting = {}

  -- Writes to a key, which then lives for at least this long. Its expiry is set first: a user without that permission
  -- fails before there is a key that would stay for ever.
  local function write(key, ms, command, ...)
    local expiry, is_new = string.format('%.0f', ms), false
    if redis.call('PTTL', key) < ms then is_new = redis.call('PEXPIRE', key, expiry) == 0 end
    redis.call(command, key, ...)
    if is_new then redis.call('PEXPIRE', key, expiry) end
  end

  -- Puts a client at the end, unless it is in the queue already, and lets it count as alive.
  function waiting.join(client, patience)
    -- After a write that a full server accepts it accepts the others too: a place takes a few bytes, and a waiting
    -- client should not be turned away.
    redis.call('ZREM', queue, '')
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    write(queue, patience + 10000, 'ZADD', 'NX', string.format('%.0f', (last[2] or 0) + 1), client)
    write(alive, patience + 10000, 'HSET', client, string.format('%.0f', now + patience))
  end

  function waiting.leave(client)
    redis.call('ZREM', queue, client)
    redis.call('HDEL', alive, client)
  end

  -- Returns the first client that counts as alive, and the one behind it; nil: the queue is empty. Drops the dead
  -- before it, but no more than 64: false says that more may follow.
  function waiting.head()
    for _ = 1, 64 do
      local front = redis.call('ZRANGE', queue, 0, 1)
      local head = front[1]
      if not head then
        redis.call('DEL', alive)
        return nil
      end
      if tonumber(redis.call('HGET', alive, head) or '0') > now then return head, front[2] end
      waiting.leave(head)
    end
    return false
  end

  -- Tells the client that is first in the queue, if there is one, for how long the name is kept for another.
  function waiting.warn(head, ms)
    if head then redis.pcall(publish, lease .. ':turn:' .. head, 'next ' .. ms) end
  end

  -- Keeps the name free for the claim of this client, which leaves the queue. Tells it, and tells the client behind it
  -- when to check.
  function waiting.offer(client, behind)
    waiting.leave(client)
    redis.call('SET', lease, 'offer ' .. client, 'PX', offer_ms)
    redis.pcall(publish, lease .. ':turn:' .. client, 'turn')
    waiting.warn(behind, offer_ms)
  end

  -- Offers a name that was just freed to the first client in the queue; if there is none, tells all subscribers.
  function waiting.pass_on()
    local head, behind = waiting.head()
    if head then waiting.offer(head, behind) else redis.pcall(publish, lease .. ':freed', '0') end
  end

  return waiting
end
