package sender

import "errors"

// errNotBegun is why nothing of a request is written: its MayBegin has forbidden it.
var errNotBegun = errors.New("the request may not begin")

// mayBegin reports whether the request may begin now. If not, it ends.
func (x *exchange) mayBegin() bool {
	if x.isAllowed == nil || x.isAllowed() {
		return true
	}

	x.isNotBegun.Store(true)
	if x.cancel != nil {
		x.cancel()
	}
	return false
}

// How MayBegin is asked as the last thing before a request's first byte.
//
// Over HTTP/1.1 the goroutine that writes the request asks. A refusal costs nothing; the connection is kept.
//
// Over HTTP/2 a connection cannot tell the requests that it carries, since it is below TLS. So MayBegin is
// asked twice:
//
//   - When the request has its connection. A refusal cancels its context, which http.Transport looks at
//     once more under the lock of the connection's writer, before it writes anything of the request. The
//     connection and its other requests go on.
//   - Under that lock, when the first field of the request's header is being encoded. This is the last
//     thing before its frames are written, after the request has waited for a stream and for the writer.
//     Nothing can be taken back there, so a refusal breaks the connection below TLS, and the Write of these
//     frames fails. It cuts off the other requests on it. They are of the same URL, and nothing is known of
//     them then (Answer.NotBegun).
//
// Between that and the kernel there is the encryption of a record, and no more.

// wroteHeaderField is httptrace.ClientTrace.WroteHeaderField. http.Transport calls it with the lock of
// an HTTP/2 connection's writer, before it writes the header.
func (x *exchange) wroteHeaderField(string, []string) {
	conn := x.multiplexed.Load()
	if conn == nil || x.hasBegun.Swap(true) {
		return
	}
	if !x.mayBegin() {
		conn.isBroken.Store(true)
	}
}

// isCutOff reports that nothing is known of a request that has failed, because it was not begun, or
// because another one on its connection was not.
func (x *exchange) isCutOff() bool {
	conn := x.multiplexed.Load()
	return x.isNotBegun.Load() || conn != nil && conn.isBroken.Load()
}
