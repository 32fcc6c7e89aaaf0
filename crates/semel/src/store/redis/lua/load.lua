#!lua flags=no-writes
local t = redis.call('TIME')
local found = {t[1], t[2]}
for i = 1, #KEYS do
  found[i + 2] = redis.call('GET', KEYS[i])
end
return found
