-- Counts one request that needs nothing else of the ledger.
-- KEYS 1 ring, 2 account
-- ARGV 1 endpoint letter
-- Replies: unknown (no such account), and with a quota: limited (nothing
--   counted), suspended, counted
-- Repeated call: counts again.
local refused, verdict, now = count_request(KEYS[1], KEYS[2], ARGV[1], clock())
return refused or reply('counted', verdict, now)
