#!lua
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local head = redis.call('GETRANGE', KEYS[1], 0, 63)
if head ~= '' and string.sub(head, 33, 64) == ARGV[1] and tonumber(string.sub(head, 1, 16)) > now then
  redis.call('SETRANGE', KEYS[1], 0, string.format('%016.0f', now + string.sub(head, 17, 32)))
  return 1
end
return {t[1], t[2], redis.call('GET', KEYS[1])}
