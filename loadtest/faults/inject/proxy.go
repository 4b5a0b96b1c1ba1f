package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// server is what toxiproxy asks for behind every proxy. It listens nowhere.
var server = sync.OnceValue(func() *toxiproxy.ApiServer {
	toxics.Register("spy", new(spyToxic))
	toxics.Register("gate", new(gateToxic))
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
})

// Proxy stands between one program and one server that it calls.
type Proxy struct {
	Addr string // where the program connects

	proxy  *toxiproxy.Proxy
	number string
	trap   atomic.Pointer[Trap]
	muted  atomic.Bool // what the server answers is dropped
	deaf   atomic.Bool // what the program asks is dropped
	delay  atomic.Pointer[delay]

	mu sync.Mutex // one harm at a time
}

// delay is how much later answers are.
type delay struct{ by, jitter time.Duration }

// proxies finds the proxy of a toxic, which toxiproxy makes from JSON.
var (
	proxies sync.Map // number: *Proxy
	last    atomic.Int64
)

// NewProxy listens on addr (a free port of loopback) and passes everything on to
// upstream, which need not listen yet.
func NewProxy(name, addr, upstream string) (*Proxy, error) {
	p := &Proxy{Addr: addr, number: fmt.Sprint(last.Add(1))}
	p.proxy = toxiproxy.NewProxy(server(), name, addr, upstream)
	proxies.Store(p.number, p)
	for _, t := range []struct{ kind, stream string }{{"spy", "upstream"}, {"gate", "downstream"}} {
		if err := p.add(t.kind, t.kind, t.stream, map[string]any{"proxy": p.number}); err != nil {
			return nil, err
		}
	}
	if err := p.proxy.Start(); err != nil {
		return nil, fmt.Errorf("proxy %s: %w", name, err)
	}
	return p, nil
}

func (p *Proxy) add(name, kind, stream string, attributes map[string]any) error {
	text, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		return fmt.Errorf("toxic %s: %w", kind, err)
	}
	if _, err := p.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("toxic %s: %w", kind, err)
	}
	return nil
}

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() {
	p.proxy.Stop()
	proxies.Delete(p.number)
}

// Refuse closes every connection and refuses new ones until Heal, as a host
// whose program is gone does.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
}

// restart listens again. Between closing and listening the port is free for
// others, so one that is taken for a moment is asked for again.
func (p *Proxy) restart() (err error) {
	for range 100 {
		if err = p.proxy.Start(); err == nil || err == toxiproxy.ErrProxyAlreadyStarted { //nolint:errorlint // it is returned bare
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("proxy %s: %w", p.proxy.Name, err)
}

// Swallow drops every byte in both directions until Heal, as a network that is
// parted does: nobody is told.
func (p *Proxy) Swallow() {
	p.deaf.Store(true)
	p.muted.Store(true)
}

// Mute drops every answer until Heal; requests still arrive and take effect.
// After it has returned no byte of an answer passes.
func (p *Proxy) Mute() { p.muted.Store(true) }

// Delay makes every answer later by the given time, more or less by jitter,
// until Heal.
func (p *Proxy) Delay(by, jitter time.Duration) { p.delay.Store(&delay{by, jitter}) }

// await returns when a chunk that came at a time may go on.
func (d *delay) await(came time.Time) {
	if d != nil {
		time.Sleep(time.Until(came.Add(d.by - d.jitter + rand.N(2*d.jitter+1))))
	}
}

// Heal undoes everything. Connections from before are closed when some of their
// bytes may have been lost.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaceTrap(nil)
	p.delay.Store(nil)
	if p.muted.Load() || p.deaf.Load() {
		p.proxy.Stop()
	}
	p.muted.Store(false)
	p.deaf.Store(false)
	return p.restart()
}
