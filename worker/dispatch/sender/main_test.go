package sender

import (
	"net/http"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) {
	testserver.Parallel(8)
	testserver.Main(m)
}

// publicOptions are those of production, with a timeout that no busy machine reaches.
func publicOptions() Options { return Options{Concurrency: 256, Timeout: time.Minute} }

// localOptions also allow receivers on this machine.
func localOptions() Options {
	options := publicOptions()
	options.LocalReceivers = true
	return options
}

// asReceived is a header as a server in Go gets it.
func asReceived(sent http.Header) http.Header {
	received := http.Header{}
	for name, values := range sent {
		if len(values) > 0 {
			received[http.CanonicalHeaderKey(name)] = values
		}
	}
	return received
}
