// Package pace sends HTTP requests to a schedule that is fixed before the first
// one is sent, and tells how long each took from its scheduled instant to the
// last byte of its answer. A server that stalls delays every request that was
// due meanwhile, and every one of them is counted with its delay; a generator
// that waits for the answer before it looks at the clock would leave them out
// (coordinated omission).
//
//	schedule: request n is due at start + n/rate
//	    |  the dispatcher sleeps until then
//	    v
//	a connection without a request under way --> written, answered, recorded
//	none? --> it waits its turn, and its clock is running
//
// It owns keep-alive connections that send prepared bytes and read answers with
// a Content-Length, so cheaply that a generator on the server's own machine
// disturbs it little. It refuses what would make it a client: it does not
// resend, reconnect, follow, or read an answer's content.
package pace
