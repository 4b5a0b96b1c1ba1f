package dashboard

import (
	"context"
	"strings"
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

// readiness is what a program answered last.
type readiness struct {
	name  string    // empty: it was not asked yet
	wrong error     // nil: it is ready
	since time.Time // when wrong was seen first, as far as this process knows
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
			probed[i] = readiness{name: program.Name, wrong: program.Ask(ctx), since: before[i].since}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return // this process ends; that says nothing of them
	}
	for i := range probed {
		if before[i].wrong == nil {
			probed[i].since = time.Now()
		}
	}
	p.probed.Store(&probed)
}

// programs are all there are, with what they answered last.
func (p *Pages) programs() []readiness {
	if probed := p.probed.Load(); probed != nil {
		return *probed
	}
	return make([]readiness, len(p.Programs))
}

// Answering are the names of what answers, for a page with nothing else to say.
func (s *seen) Answering() string {
	names := []string{"Redis"}
	if s.History {
		names = append(names, "ClickHouse")
	}
	for _, r := range s.programs {
		if r.name != "" && r.wrong == nil {
			names = append(names, r.name)
		}
	}
	return strings.Join(names, ", ")
}
