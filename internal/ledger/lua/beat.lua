-- Raises a count in the hash of workers: a worker's, by which the others see that it is alive,
-- or that of releases.
-- KEYS 1 workers
-- ARGV 1 field
-- Reply: the count
-- Repeated call: raises it again; whoever watches it sees a change either way.
return call('HINCRBY', KEYS[1], ARGV[1], 1)
