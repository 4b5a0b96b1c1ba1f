package dashboard

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Program is one that the overview tells of when it is not ready.
type Program struct {
	Name string
	Ask  func(context.Context) error // its /readyz; nil: it is ready
}

// How often the programs are asked, and how long each may take to answer.
const (
	probePause = 3 * time.Second
	probeLimit = 2 * time.Second
)

// readiness is what a program said last.
type readiness struct {
	name  string
	asked bool
	wrong error     // nil: it is ready
	since time.Time // when wrong was seen first, as far as this process knows
}

// Probe asks the programs until ctx ends, whether somebody looks or not: since
// when one does not answer is known only to who keeps asking.
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
	found := make([]error, len(p.Programs))
	var all sync.WaitGroup
	for i, program := range p.Programs {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeLimit)
			defer cancel()
			found[i] = program.Ask(ctx)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return // that says nothing of them
	}
	now, before := time.Now(), p.programs()
	p.probing.Lock()
	defer p.probing.Unlock()
	p.probed = make([]readiness, len(before))
	for i, r := range before {
		if r.wrong == nil {
			r.since = now
		}
		p.probed[i] = readiness{name: r.name, asked: true, wrong: found[i], since: r.since}
	}
}

// programs are all there are, with what they said last.
func (p *Pages) programs() []readiness {
	p.probing.Lock()
	defer p.probing.Unlock()
	if p.probed == nil {
		for _, program := range p.Programs {
			p.probed = append(p.probed, readiness{name: program.Name})
		}
	}
	return p.probed
}

func (s *seen) programConcerns() (list []concern) {
	for _, r := range s.programs {
		if r.wrong == nil {
			continue
		}
		c := concern{State: "away", Tone: "bad", Subject: r.name, Since: r.since, Note: "It does not answer on its private listener."}
		if why, ok := strings.CutPrefix(r.wrong.Error(), "not ready: "); ok {
			c.State, c.Note = "not ready", why
		}
		list = append(list, c)
	}
	return list
}

// answering are the names of what answers, for a page with nothing else to say.
func (s *seen) answering() string {
	names := []string{"Redis"}
	if s.history {
		names = append(names, "ClickHouse")
	}
	for _, r := range s.programs {
		if r.asked && r.wrong == nil {
			names = append(names, r.name)
		}
	}
	return strings.Join(names, ", ")
}
