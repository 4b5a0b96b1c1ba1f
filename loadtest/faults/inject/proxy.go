package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

	mu    sync.Mutex // one harm at a time
	harms map[string]bool
}

// proxies finds the proxy of a toxic, which toxiproxy makes from JSON.
var (
	proxies sync.Map // number: *Proxy
	last    atomic.Int64
)

// NewProxy listens on addr (a free port of loopback) and passes everything on to
// upstream, which need not listen yet.
func NewProxy(name, addr, upstream string) (*Proxy, error) {
	p := &Proxy{Addr: addr, number: fmt.Sprint(last.Add(1)), harms: make(map[string]bool)}
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
func (p *Proxy) Swallow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stream := range []string{"upstream", "downstream"} {
		if err := p.harm("swallow "+stream, "timeout", stream, map[string]any{"timeout": 0}); err != nil {
			return err
		}
	}
	return nil
}

// Mute drops every answer until Heal; requests still arrive and take effect.
// After it has returned no byte of an answer passes.
func (p *Proxy) Mute() { p.muted.Store(true) }

// Delay makes every answer later by the given time, more or less by jitter,
// until Heal.
func (p *Proxy) Delay(by, jitter time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.harm("delay", "latency", "downstream", map[string]any{"latency": by.Milliseconds(), "jitter": jitter.Milliseconds()})
}

func (p *Proxy) harm(name, kind, stream string, attributes map[string]any) error {
	if p.harms[name] {
		return nil
	}
	p.harms[name] = true
	return p.add(name, kind, stream, attributes)
}

// Heal undoes everything. Connections from before are closed when some of their
// bytes may have been lost.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaceTrap(nil)
	lost := p.muted.Load()
	if len(p.harms) > 0 || lost {
		// Stopped first: taking a toxic out of a busy connection can take seconds.
		p.proxy.Stop()
	}
	for name := range p.harms {
		if err := p.proxy.Toxics.RemoveToxic(context.Background(), name); err != nil {
			return fmt.Errorf("healing: %w", err)
		}
		delete(p.harms, name)
	}
	p.muted.Store(false)
	return p.restart()
}
