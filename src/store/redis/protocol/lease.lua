-- The value of a lease's key. Sent in front of the scripts that read one.
--
-- The value is one string, written together with its expiry:
--   '<holder> <token> <info>'            held. A holder has 49 bytes, so a prefix of the value identifies the holder
--   'evicted <holder> <token> <info>'    held, but not renewable any more
--   'kept <token> <info>'                released; the name stays taken for the rest of the time to live
--   'offer <client>'                     nobody has the name; an older version kept it for a claim of that client
-- A value of any other form, or a key of another type, belongs to another program: it is left alone, and the answer is
-- WRONGTYPE.

-- No function captures a local of this part as an upvalue: each would cost every call a tenth of a microsecond.

local function is_lease(value)
  local find = string.find
  return find(value, '^%x+%-%x+ %d+ {') or find(value, '^evicted %x+%-%x+ %d+ {') or find(value, '^kept %d+ {')
    or find(value, '^offer %x+$')
end

local FOREIGN = 'WRONGTYPE the key of the lease holds something else'
local call, find, sub = redis.call, string.find, string.sub
