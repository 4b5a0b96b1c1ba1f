package sender

import "crypto/tls"

// maxHello is how many bytes a ClientHello may have: one segment of TCP on an Ethernet. Some
// firewalls and old servers reset a connection whose ClientHello comes in two.
const maxHello = 1460

// maxTicket is how long a session's ticket may be that goes into a ClientHello. All else in it
// has at most some 760 bytes, with the longest host name.
const maxTicket = 600

// receiversTLS is how the service speaks TLS to receivers, of which some are older than what a
// Go program asks for by itself.
func receiversTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// Without X25519MLKEM768 and its like, whose shares of a key have 1,200 bytes and more.
		CurvePreferences:   []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		CipherSuites:       receiversCiphers(),
		ClientSessionCache: smallSessions{tls.NewLRUClientSessionCache(sessionsKept)},
	}
}

// receiversCiphers are those of TLS 1.2: all that Go offers, and behind them the exchange of a
// key by RSA, which some receivers have alone. It has no forward secrecy, so a receiver that
// can choose takes another one.
func receiversCiphers() []uint16 {
	var ciphers []uint16
	for _, suite := range tls.CipherSuites() {
		ciphers = append(ciphers, suite.ID)
	}
	return append(ciphers,
		tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
}

// smallSessions remembers the sessions whose tickets fit into a ClientHello of maxHello bytes.
// A receiver with longer ones makes a whole handshake each time.
type smallSessions struct{ tls.ClientSessionCache }

func (s smallSessions) Put(key string, session *tls.ClientSessionState) {
	if session != nil {
		ticket, _, err := session.ResumptionState()
		if err != nil || len(ticket) > maxTicket {
			session = nil // which removes an earlier one
		}
	}
	s.ClientSessionCache.Put(key, session)
}
