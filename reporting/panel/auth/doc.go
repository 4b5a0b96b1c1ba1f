// Package auth decides who may do what on the panel's listener: people sign
// in with a name and a password and have a session, programs carry a bearer
// token, and both have roles.
//
// It owns the two lists of secrets (users with argon2id hashes, tokens with
// SHA-256 digests; from the environment or files, never from the settings), the
// pages on which one signs in and out, the cookie, the proof that a form is the
// panel's own, and the headers that keep a browser from doing more than a page
// needs. Sessions and the counting of attempts live in the ledger, so any
// replica knows them.
//
// It refuses to know what is behind a page. A role is exactly what it says: an
// operator who is not finance as well downloads no report, because the figures
// of all vendors are nobody's business who runs webhooks, and the other way
// round.
//
// A right password is refused to nobody for the wrong ones of others, so no number
// of attempts locks anybody out: whether a password is right is known only after
// its hash was computed, and so every attempt gets its turn. What bounds guessing,
// and the time and memory that strangers take with it, is that there are few
// turns, that a turn rests after a wrong password for as long as its check took,
// and that attempts wait for a turn in an order (turns.order): those beyond the
// ledger's limits by user and by address behind all others, and a flood behind
// whoever comes from another address. Behind a proxy the address is the client's
// only if the proxy is among the trusted ones. The case that is left, a flood from
// the same address with more attempts at once than there are turns within
// checkPatience, is for browsers in which the user has signed in before: they
// carry a signed cookie and have a turn of their own.
//
// Cookies are SameSite=Lax and not Strict, so that a link in a mail to a report
// opens for who is signed in. Nothing changes state on GET; every other method
// needs the session's CSRF token and must not come from another origin.
package auth
