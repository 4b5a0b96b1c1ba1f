-- Tells the other workers that this one is alive and may do all that an owner does. One that lacks
-- a right could be stopped in the middle of a step, which then stays half written.
-- KEYS 1 list of workers
-- ARGV 1 the worker ('': nothing is stored, the rights are what matters), 2 its count of beats
-- Replies: the commands that the caller may not use on the key; none: the beat is stored
-- Repeated call: answers the same, and stores the same.
local key = KEYS[1]
local needed = {
  {'FCALL_RO', 'f', '1', key}, {'EVAL', '', '1', key}, {'EVALSHA', '', '1', key},
  {'TIME'}, {'EXISTS', key}, {'DEL', key}, {'TTL', key}, {'EXPIRE', key, '1'}, {'COPY', key, key}, {'RENAME', key, key},
  {'GET', key}, {'SET', key, ''}, {'MGET', key}, {'GETRANGE', key, '0', '0'}, {'SETRANGE', key, '0', ''}, {'SETBIT', key, '0', '0'}, {'APPEND', key, ''},
  {'HGET', key, 'f'}, {'HSET', key, 'f', ''}, {'HMGET', key, 'f'}, {'HGETALL', key}, {'HEXISTS', key, 'f'},
  {'HSETNX', key, 'f', ''}, {'HDEL', key, 'f'}, {'HINCRBY', key, 'f', '1'},
  {'LLEN', key}, {'LRANGE', key, '0', '0'}, {'LPOP', key}, {'LPUSH', key, ''}, {'RPUSH', key, ''}, {'LTRIM', key, '0', '0'},
  {'SADD', key, ''}, {'SREM', key, ''}, {'SMEMBERS', key}, {'SCARD', key},
  {'ZADD', key, '0', ''}, {'ZCARD', key}, {'ZRANGE', key, '0', '0'}, {'ZRANGEBYSCORE', key, '0', '0'}, {'ZREM', key, ''},
  {'XREAD', 'STREAMS', key, '0'}, {'XRANGE', key, '-', '+'}, {'XREVRANGE', key, '+', '-'}, {'XADD', key, '*', 'f', ''},
  {'XLEN', key}, {'XTRIM', key, 'MAXLEN', '0'},
  {'XGROUP', 'CREATE', key, 'g', '0'}, {'XGROUP', 'SETID', key, 'g', '0'}, {'XGROUP', 'DESTROY', key, 'g'},
  {'XINFO', 'GROUPS', key}, {'XINFO', 'STREAM', key}, {'XINFO', 'CONSUMERS', key, 'g'}, {'XPENDING', key, 'g'},
}
local missing = {}
for _, words in ipairs(needed) do
  if not redis.acl_check_cmd(unpack(words)) then
    local subcommand = (words[1] == 'XGROUP' or words[1] == 'XINFO') and '|' .. words[2] or ''
    missing[#missing + 1] = words[1] .. subcommand
  end
end
if #missing == 0 and ARGV[1] ~= '' then call('HSET', key, ARGV[1], ARGV[2]) end
return missing
