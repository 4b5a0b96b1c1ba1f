// Package adminapi is the panel's way to change anything: one request to the
// gateway's admin API (design section 5) for each thing that an operator does.
//
// It owns the form of such a request: the key, the operator's name in the header
// X-Operator, how long an answer may take and how large it may be, and what an
// answer means to the panel. A refusal comes back as the *delivery.Error that
// the gateway answered; everything else is an error that tells apart a gateway
// that is away, a key that is wrong, and somebody who is no gateway at all.
//
// It refuses to know what can be done (rules, messages and audit lines exist
// once, in the gateway) and to try again: after a timeout nobody knows whether
// the change was made, and that is for the operator to look at.
package adminapi
