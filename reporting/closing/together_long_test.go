//go:build long

package closing

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive/archiveenv"
)

// hold holds a month whose orders are stored.
func (e *env) hold(m Month) {
	e.T.Helper()
	e.clock = m.Next().Add(Grace + time.Hour)
	err := decide(e.T.Context(), e.books, KindHold, m, "ayse", "seen")
	testenv.Must(e.T, err)
}

// requireLog wants so many closings, each of another month, and so many orders corrected, each version once.
func (e *env) requireLog(closings, corrections int) {
	e.T.Helper()
	closed, corrected := map[Month]bool{}, 0
	for _, entry := range e.log().Entries {
		if entry.Kind == KindClose && closed[entry.Month] {
			e.T.Errorf("%s was closed twice", entry.Month)
		}
		if entry.Kind == KindClose {
			closed[entry.Month] = true
		}
		corrected += len(entry.Corrections)
	}

	if len(closed) != closings || corrected != corrections {
		e.T.Errorf("%d closings, %d corrections, want %d and %d", len(closed), corrected, closings, corrections)
	}
}

// roundsTogether: in each a month is closed, and an order corrected.
const roundsTogether = 6

// Two who close at once and two who correct at once: one closing, each correction once.
func TestBooks_ManyAtOnceDecideOnce(t *testing.T) {
	t.Parallel()

	e, m := newEnvWithReports(t), month("2025-10")
	o := e.order(m.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	e.close(m)
	for round := range roundsTogether {
		m = m.Next()
		e.store(e.order(m.Add(12*time.Hour), delivery.Delivered, 100))
		e.hold(m)
		o.Collection.Minor++
		e.store(o)
		var all sync.WaitGroup
		for _, who := range []string{"ece", "efe"} {
			b := e.newBooks()
			all.Go(func() {
				for { // a correction can come in between
					err := decide(t.Context(), b, KindClose, m, who, "")
					if err == nil || errors.Is(err, ErrRefused) {
						return
					}
					if !errors.Is(err, ErrChanged) {
						t.Errorf("%s: %v", who, err)
						return
					}
				}
			})

			other := e.newBooks()
			all.Go(func() {
				if _, left, err := correct(t.Context(), other, who, "", o.ID); err != nil || len(left) > 0 {
					t.Errorf("%s: %v, left %v", who, err, left)
				}
			})
		}

		all.Wait()
		e.requireLog(round+2, round+1)
	}

	if v := e.verify(); len(v.Findings)+len(v.Pending) > 0 {
		t.Errorf("%+v", v)
	}
}

// redisProxy stands between a ledger and Redis. It can cut connections before or behind the command that
// moves the head of the log.
type redisProxy struct{ before, behind atomic.Bool }

func (p *redisProxy) serve(listener net.Listener, server string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}

		go func() {
			defer client.Close()
			redis, err := net.Dial("tcp", server)
			if err != nil {
				return
			}
			defer redis.Close()

			cut := make(chan struct{}) // closed: the next answer is not passed on
			go func() {
				defer redis.Close()
				buffer := make([]byte, 1<<20)
				once := sync.OnceFunc(func() { close(cut) })
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}

					sent := bytes.ToLower(buffer[:n])
					movesHead := bytes.Contains(sent, []byte("eval")) && bytes.Contains(sent, []byte("books:{sg}head"))
					if movesHead {
						if p.before.Load() {
							return
						}
						if p.behind.Load() {
							once()
						}
					}

					if _, err := redis.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()

			buffer := make([]byte, 1<<20)
			for {
				n, err := redis.Read(buffer)
				select {
				case <-cut:
					return
				default:
				}

				if err != nil {
					return
				}

				if _, err := client.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// The answer to what decides is lost, again and again: it was decided or it was not, and a repetition decides nothing twice.
func TestBooks_AnUnknownOutcomeIsDecidedOnce(t *testing.T) {
	t.Parallel()

	e, m := newEnvWithReports(t), month("2025-10")
	config := e.ConfigFor(stack.OperatorUser)
	address, err := url.Parse(config.URL)
	testenv.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	defer listener.Close()
	proxy := &redisProxy{}
	go proxy.serve(listener, address.Host)
	address.Host = listener.Addr().String()
	config.URL = address.String()
	l, err := ledger.Open(t.Context(), config)
	testenv.Must(t, err)
	defer func() { _ = l.Close() }()
	b := New(l, e.OpenArchive(), archiveenv.BooksKeys, slog.New(slog.DiscardHandler))
	b.now = func() time.Time { return e.clock }
	unknown := func(err error) {
		t.Helper()
		if err == nil || errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "it is not known whether it was decided") {
			t.Fatalf("%v", err)
		}
	}

	o := e.order(m.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	e.hold(m)
	closing := func() error {
		err := decide(t.Context(), b, KindClose, m, "ece", "")
		return err
	}

	proxy.before.Store(true)
	unknown(closing())
	e.requireLog(0, 0)
	proxy.before.Store(false)
	proxy.behind.Store(true)
	unknown(closing())
	proxy.behind.Store(false)
	e.requireLog(1, 0)
	if err := closing(); !errors.Is(err, ErrRefused) {
		t.Errorf("closed once more: %v", err)
	}

	o.Collection.Minor++
	e.store(o)
	proxy.behind.Store(true)
	_, _, err = correct(t.Context(), b, "ece", "", o.ID)
	unknown(err)
	proxy.behind.Store(false)
	booked, left, err := correct(t.Context(), b, "ece", "", o.ID)
	testenv.Must(t, err)
	if len(booked)+len(left) > 0 {
		t.Errorf("booked %v, left %v", booked, left)
	}

	e.requireLog(1, 1)
	if v := e.verify(); len(v.Findings)+len(v.Pending) > 0 {
		t.Errorf("%+v", v)
	}
}
