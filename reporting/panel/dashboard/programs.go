package dashboard

import (
	"context"
	"sync"
	"time"
)

// Program is one whose readiness the overview shows.
type Program struct {
	Name string
	Ask  func(context.Context) error // its /readyz; nil: it is ready
}

// How often the programs are asked, and how long each may take to answer.
const (
	probePause   = 3 * time.Second
	probeTimeout = 2 * time.Second
)

type readiness struct {
	Name  string    // empty: it was not asked yet
	Wrong error     // nil: it is ready
	Since time.Time // when Wrong was seen first, as far as this process knows
}

// Probe asks the programs until ctx ends.
func (p *Pages) Probe(ctx context.Context) {
	for ctx.Err() == nil {
		p.probe(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}

func (p *Pages) probe(ctx context.Context) {
	probed := make([]readiness, len(p.Programs))
	before := p.programs()
	var all sync.WaitGroup
	for i, program := range p.Programs {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			probed[i] = readiness{program.Name, program.Ask(ctx), before[i].Since}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return // this process ends; that says nothing of them
	}
	for i := range probed {
		if before[i].Wrong == nil {
			probed[i].Since = time.Now()
		}
	}
	p.probed.Store(&probed)
}

func (p *Pages) programs() []readiness {
	if probed := p.probed.Load(); probed != nil {
		return *probed
	}
	return make([]readiness, len(p.Programs))
}
