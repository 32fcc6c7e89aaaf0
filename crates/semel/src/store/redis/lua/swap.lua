#!lua
-- KEYS: the index, then the record of each change
-- ARGV: the stem of the channels, then for each change: what it is, the version it expects, its ttl, its version and value
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local none = '0000000000000000'
local written, absent, removes = {}, {}, false

for i = 1, #KEYS - 1 do
  local key, a = KEYS[i + 1], 4 * i - 2
  local what, expect = string.sub(ARGV[a], 1, 1), string.sub(ARGV[a], 2, 2)
  local head = redis.call('GETRANGE', key, 0, 63)
  local meets = head == ''
  absent[i] = meets
  if expect ~= 'A' then
    meets = not meets and string.sub(head, 33, 64) == ARGV[a + 1]
    if meets and expect ~= 'V' then
      local deadline = tonumber(string.sub(head, 1, 16))
      meets = deadline > 0 and (deadline > now) == (expect == 'L')
    end
  end
  if written[key] or not meets then
    return {i - 1, t[1], t[2], redis.call('GET', key)}
  end
  if what ~= 'G' then
    written[key] = true
    removes = removes or what == 'R'
  end
end

local stem = #KEYS[1] + 2
if removes then
  -- whoever may not do all of it is refused before any of it is done
  local nothing = string.sub(KEYS[1], 1, -2) .. 'n'
  redis.call('SET', nothing, '', 'XX')
  redis.call('DEL', nothing)
  redis.call('ZREM', KEYS[1], '')
end
-- the names first: a name without a record is no harm, a record without a name would be
for i = 1, #KEYS - 1 do
  if absent[i] and string.sub(ARGV[4 * i - 2], 1, 1) == 'P' then
    redis.call('ZADD', KEYS[1], 0, string.sub(KEYS[i + 1], stem))
  end
end
for i = 1, #KEYS - 1 do
  local key, a = KEYS[i + 1], 4 * i - 2
  local what = string.sub(ARGV[a], 1, 1)
  if what == 'P' then
    local ttl, deadline = ARGV[a + 2], none
    if ttl ~= none then
      deadline = string.format('%016.0f', now + ttl)
    end
    redis.call('SET', key, deadline .. ttl .. ARGV[a + 3])
  elseif what == 'R' and not absent[i] then
    redis.call('DEL', key)
    redis.call('ZREM', KEYS[1], string.sub(key, stem))
  end
end
-- a hint: who may not publish is served all the same
for i = 1, #KEYS - 1 do
  if string.sub(ARGV[4 * i - 2], 1, 1) ~= 'G' then
    redis.pcall('PUBLISH', ARGV[1] .. string.sub(KEYS[i + 1], stem), string.sub(ARGV[4 * i + 1], 1, 32))
  end
end
return 1
