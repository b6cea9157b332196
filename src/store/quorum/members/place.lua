-- The place of a server in a quorum: the functions `look`, `adopt`, `reserve`, `open` and `close` of the protocol.
--
-- KEYS   1 node
-- ARGV   1 'look'            and nothing that counts
--        1 'reserve'         2 the run of `init`
--        1 'close'           2 quorum   3 index   4 number of members   5 the quorum for which it is closed
--        1 'adopt', 'open'   2 quorum   3 index   4 number of members   5 longest ttl in ms   6 the incarnation that was found,
--                            or the run of `init`   7 the highest token that any grant can have   8 the places of all members
-- Reply  {'node', clock, incarnation, when it was first seen or 0, 1 if it is in or 0, then name and value of each of the fields
--        below that the node has then}
--        {'foreign', 'alone' or 'old'}     nothing was changed
--        {'invalid', argument, value}      nothing was changed

local fields = {'quorum', 'index', 'of', 'keep_out', 'max', 'floor', 'closed_for', 'reserved_by', 'members', 'asked_for'}
local what = ARGV[1]
local since, clock = 0, tonumber(clock_us())

-- All numbers are checked before the first write.
for i = 2, #ARGV do
  local is_text = i == 8 or i == 6 and what == 'adopt'
  if not is_text and (#ARGV[i] > 20 or not find(ARGV[i], '^%d+$')) then return {'invalid', 'argument', ARGV[i]} end
end

local is_it = quorum and quorum == ARGV[2] and index == ARGV[3] and of == ARGV[4]

local function write()
  local lowest = digits(math.max(tonumber(ARGV[7]), tonumber(max or '0')) + 1)
  is_in = true
  call('DEL', node)
  -- The longest ttl of a member that is out stays.
  call('HSET', node, 'quorum', ARGV[2], 'index', ARGV[3], 'of', ARGV[4], 'keep_out', is_it and keep_out or ARGV[5],
    'incarnation', present, 'replid', match(info, 'master_replid:(%x+)'), 'max', lowest, 'floor', lowest, 'members', ARGV[8])
end

if what == 'look' or what == 'reserve' then
  if what == 'reserve' then call('HSET', node, 'reserved_by', ARGV[2]) end
  if not is_in or closed_for then since = see(present, clock) end
elseif what == 'adopt' then
  -- One that is out, or blank, or was closed to become this member.
  if is_it and not closed_for and not is_in or not is_it and (not quorum or closed_for == ARGV[2]) then
    since = see(present, clock)
    -- A hundredth more, because the holders' clocks may be slower.
    local span = (is_it and keep_out or ARGV[5]) * 1010 + 2000
    if clock - since >= span and present == ARGV[6] then write() end
  end
elseif what == 'open' then
  if is_it then
    if not is_in and not closed_for then since = see(present, clock) end
  elseif not quorum or closed_for == ARGV[2] then
    local reserved_by = call('HMGET', node, 'reserved_by')[1]
    if reserved_by == ARGV[6] then write() else since = see(present, clock) end
  end
elseif what == 'close' then
  if not quorum then since = see(present, clock)
  elseif is_it and not closed_for and quorum ~= ARGV[5] then
    call('HSET', node, 'closed_for', ARGV[5])
  end
else
  return {'invalid', 'what', what}
end

local answer = {'node', clock, present, since, is_in and 1 or 0}
for i, value in ipairs(call('HMGET', node, unpack(fields))) do
  if value then
    answer[#answer + 1] = fields[i]
    answer[#answer + 1] = value
  end
end
return answer
