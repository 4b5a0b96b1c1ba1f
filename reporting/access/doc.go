// Package access decides who may do what on the panel's listener: people sign
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
// Cookies are SameSite=Lax and not Strict, so that a link in a mail to a report
// opens for who is signed in. Nothing changes state on GET; every other method
// needs the session's CSRF token and must not come from another origin.
package access
