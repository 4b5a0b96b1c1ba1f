package stack

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// Free ports are taken from below the range that systems give to outgoing
// connections (32768 and up on Linux), so that no connection of a busy test
// sits on the port by the time the child listens.
const (
	lowestFreePort  = 15000
	highestFreePort = 32000
)

var given sync.Map // ports, never handed out twice by one process

// FreeAddr is 127.0.0.1 with a port that was free a moment ago and that this
// process has not been given before. It panics when there is none, as httptest does.
func FreeAddr() string {
	for range 1000 {
		addr := "127.0.0.1:" + strconv.Itoa(lowestFreePort+rand.IntN(highestFreePort-lowestFreePort))
		if requireFree("", addr) != nil {
			continue
		}
		if _, before := given.LoadOrStore(addr, true); !before {
			return addr
		}
	}
	panic("found no free port on 127.0.0.1")
}

// Listen listens on an address of FreeAddr that was closed before. Another program may
// use it for a moment, so it tries for some seconds.
func Listen(addr string) (l net.Listener, err error) {
	for range 100 {
		if l, err = net.Listen("tcp", addr); err == nil {
			return l, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

// requireFree refuses an address that something listens on already, and names
// the variable that moves it.
func requireFree(variable, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; free it or set %s to another address, such as %s=127.0.0.1:18080",
			addr, err, variable, variable)
	}
	return l.Close()
}
