-- Notes from when on an account's tokens are good, for every gateway's poll
-- (Fleets.Load).
-- KEYS 1 revoked, 2 meta
-- ARGV 1 account (16 bytes), 2 from when on, Unix seconds
-- Replies: written
-- Repeated call: writes the same again.
revoke_tokens(KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), clock() / 1000000)
return 'written'
