-- The place of a server in a quorum: the functions `look`, `adopt`, `reserve`, `open` and `close` of the protocol.
--
-- KEYS   1 node
-- ARGV   1 'look'            and nothing that counts
--        1 'reserve'         2 the run of `init`
--        1 'close'           2 quorum   3 index   4 number of members   5 the quorum for which it is closed
--        1 'adopt', 'open'   2 quorum   3 index   4 number of members   5 longest ttl in ms   6 the incarnation that was found,
--                            or the run of `init`   7 the highest token that any grant can have   8 the places of all members
-- Reply  {'node', clock, incarnation, when it was first seen or 0, 1 if it is in or 0, and as they are then: quorum, index, of,
--        keep_out, max, floor, closed_for, reserved_by, members, asked_for}, '' for each that is missing
--        {'foreign', 'alone' or 'old'}     nothing was changed
--        {'invalid', argument, value}      nothing was changed

local what = ARGV[1]
local since = 0

-- All numbers are checked before the first write.
for i = 2, #ARGV do
  local is_text = i == 8 or i == 6 and what == 'adopt'
  if not is_text and (#ARGV[i] > 20 or not find(ARGV[i], '^%d+$')) then return {'invalid', 'argument', ARGV[i]} end
end

local is_it = quorum and quorum == ARGV[2] and index == ARGV[3] and of == ARGV[4]

local function write()
  local highest = math.max(tonumber(ARGV[7]), tonumber(max or '0'))
  -- The longest ttl of a member that is out stays.
  if not is_it then keep_out = ARGV[5] end
  quorum, index, of, members = ARGV[2], ARGV[3], ARGV[4], ARGV[8]
  floor = digits(highest + 1)
  max, incarnation, is_in, closed_for, reserved_by, asked_for = floor, present, true, false, false, false
  call('DEL', node)
  call('HSET', node, 'quorum', quorum, 'index', index, 'of', of, 'keep_out', keep_out, 'incarnation', incarnation,
    'replid', match(info, 'master_replid:(%x+)'), 'max', max, 'floor', floor, 'members', members)
end

if what == 'look' or what == 'reserve' then
  if what == 'reserve' then
    reserved_by = ARGV[2]
    call('HSET', node, 'reserved_by', reserved_by)
  end
  if not is_in or closed_for then since = see() end
elseif what == 'adopt' then
  -- One that is out, or blank, or was closed to become this member.
  if is_it and not closed_for and not is_in or not is_it and (not quorum or closed_for == ARGV[2]) then
    since = see()
    -- A hundredth more, because the holders' clocks may be slower.
    local span = (is_it and keep_out or ARGV[5]) * 1010 + 2000
    if clock - since >= span and present == ARGV[6] then write() end
  end
elseif what == 'open' then
  if is_it then
    if not is_in and not closed_for then since = see() end
  elseif not quorum or closed_for == ARGV[2] then
    if reserved_by == ARGV[6] then write() else since = see() end
  end
elseif what == 'close' then
  if not quorum then since = see()
  elseif is_it and not closed_for and quorum ~= ARGV[5] then
    closed_for = ARGV[5]
    call('HSET', node, 'closed_for', closed_for)
  end
else
  return {'invalid', 'what', what}
end
return {'node', clock, present, since, is_in and 1 or 0, quorum or '', index or '', of or '', keep_out or '', max or '', floor or '',
  closed_for or '', reserved_by or '', members or '', asked_for or ''}
