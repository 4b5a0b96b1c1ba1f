-- Counts one request that needs nothing else of the ledger.
-- KEYS 1 windows
-- Replies: unknown (no such account), and with a quota: limited (nothing
--   counted), suspended, counted
-- Repeated call: counts again.
return count_request(KEYS[1], clock()) or reply('counted')
