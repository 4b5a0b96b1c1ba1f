-- Tells the workers that one of them has given partitions up.
-- KEYS 1 list of workers
-- ARGV 1 the field that counts releases
-- Replies: how many there have been
-- Repeated call: counts once more, after which the workers read the tokens once more.
return call('HINCRBY', KEYS[1], ARGV[1], 1)
