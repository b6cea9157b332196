-- Takes a client out of the queue, and passes an offer that it has on to the next client. It is idempotent.
--
-- KEYS   1 lease   2 queue   3 alive
-- ARGV   1 client   2 publish command: PUBLISH or SPUBLISH   3 ms for which the name is offered to the first in the queue
-- Reply  'left'
--        {'invalid', argument, value}             nothing was changed

local lease, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local client, publish, offer_ms = ARGV[1], ARGV[2], ARGV[3]
if not find(client, '^%x+$') then return {'invalid', 'client', client} end
if #offer_ms > 9 or not find(offer_ms, '^[1-9]%d*$') then return {'invalid', 'offer', offer_ms} end

local waiting = queue_of(lease, queue, alive, now_ms(), offer_ms, publish)
waiting.leave(client)
if call('GET', lease) == 'offer ' .. client then
  call('DEL', lease)
  waiting.pass_on()
end
return 'left'
