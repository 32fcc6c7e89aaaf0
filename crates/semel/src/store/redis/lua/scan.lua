#!lua flags=no-writes
local t = redis.call('TIME')
local found = {t[1], t[2]}
local stem = string.sub(KEYS[1], 1, -2) .. 'r:'
local from, left = ARGV[1], tonumber(ARGV[3])
while left > 0 do
  local asked = left
  local names = redis.call('ZRANGEBYLEX', KEYS[1], from, ARGV[2], 'LIMIT', 0, asked)
  for i = 1, #names do
    local raw = redis.call('GET', stem .. names[i])
    -- a name without a record is left by a write that was refused in its middle, or by eviction
    if raw then
      found[#found + 1] = names[i]
      found[#found + 1] = raw
      left = left - 1
    end
  end
  if #names < asked then
    break
  end
  from = '(' .. names[#names]
end
return found
