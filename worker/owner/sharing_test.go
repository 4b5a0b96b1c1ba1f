package owner

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/ledger/partitions"
)

func stored(owner string, epoch, sequence uint64) partitions.Stored {
	token := partitions.Token{Owner: owner, Epoch: epoch, Sequence: sequence}
	return token.Stored()
}

// numbered are the tokens by partition.
func numbered(tokens []partitions.Stored) map[int]partitions.Stored {
	return maps.Collect(slices.All(tokens))
}

// watch is what a worker knows that has looked every so often since the beginning.
type watch struct {
	*sharing
	now     time.Time
	tokens  []partitions.Stored
	workers map[string]string
	unread  []int // partitions whose master does not answer
}

func newWatch(count int, workers ...string) *watch {
	w := &watch{sharing: &sharing{worker: "w1"}, now: time.Unix(1_795_284_000, 0), tokens: make([]partitions.Stored, count), workers: make(map[string]string)}
	for _, name := range workers {
		w.workers[name] = "1"
	}
	return w
}

// looks lets the time pass, while the workers named beat and the partitions named are renewed.
func (w *watch) looks(passed time.Duration, beating []string, renewed ...int) {
	for ; passed > 0; passed -= pollEvery {
		w.now = w.now.Add(pollEvery)
		for _, name := range beating {
			w.workers[name] += "1"
		}

		for _, p := range renewed {
			token, _ := w.tokens[p].Token()
			token.Sequence++
			w.tokens[p] = token.Stored()
		}

		read := numbered(w.tokens)
		for _, p := range w.unread {
			delete(read, p)
		}

		w.observe(len(w.tokens), read, w.workers, w.now)
	}
}

func TestIsFirst_OneOfTheLiving(t *testing.T) {
	w := newWatch(4, "w0", "w1", "w2")
	w.looks(time.Second, []string{"w0", "w1", "w2"})
	if w.isFirst() {
		t.Error("w1 is the first although w0 lives")
	}

	w.looks(takeoverAfter+time.Second, []string{"w1", "w2"})

	if !w.isFirst() {
		t.Error("w0 is gone, and w1 is not the first")
	}

	w.looks(time.Second, []string{"w0", "w1", "w2"})

	if w.isFirst() {
		t.Error("w1 is the first although w0 has come back")
	}
}

func TestPlan_TakesAndGivesUp(t *testing.T) {
	firstPartitions := func(n int) []int {
		partitions := make([]int, n)
		for p := range n {
			partitions[p] = p
		}
		return partitions
	}

	own := func(w *watch, owner string, partitions ...int) {
		for _, p := range partitions {
			w.tokens[p] = stored(owner, 1, 1)
		}
	}

	lookOnce := func(w *watch) { w.looks(pollEvery, nil) }

	for _, c := range []struct {
		name       string
		partitions int
		workers    []string
		held       []int
		can        standing
		avoid      map[int]bool
		play       func(*watch)
		take       []int
		giveUp     int
	}{
		{
			name:       "alone, nothing is owned",
			partitions: 16,
			workers:    []string{"w1"},
			play:       lookOnce,
			take:       firstPartitions(16),
		},
		{
			name:       "alone, and it owns all",
			partitions: 16,
			workers:    []string{"w1"},
			held:       firstPartitions(16),
			play: func(w *watch) {
				own(w, "w1", firstPartitions(16)...)
				w.looks(5*time.Second, nil)
			},
		},
		{
			name:       "first of three takes the odd one",
			partitions: 16,
			workers:    []string{"w1", "w2", "w3"},
			play:       lookOnce,
			take:       firstPartitions(6),
		},
		{
			name:       "last of three",
			partitions: 16,
			workers:    []string{"w0", "w00", "w1"},
			play:       lookOnce,
			take:       firstPartitions(5),
		},
		{
			name:       "more workers than partitions",
			partitions: 2,
			workers:    []string{"w0", "w00", "w1"},
			play:       lookOnce,
		},
		{
			name:       "it is not listed itself yet",
			partitions: 16,
			workers:    []string{"w2"},
			play:       lookOnce,
			take:       firstPartitions(8),
		},
		{
			name:       "what lives is left alone",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			play: func(w *watch) {
				own(w, "w2", 0, 1, 2, 3)
				w.looks(10*time.Second, []string{"w2"}, 0, 1, 2, 3)
			},
		},
		{
			name:       "a dead worker's are taken at once",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				own(w, "w2", 2, 3)
				w.looks(takeoverAfter+pollEvery, nil, 0, 1)
			},
			take: []int{2, 3},
		},
		{
			name:       "a moment before that they are not",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				own(w, "w2", 2, 3)
				w.looks(takeoverAfter-pollEvery, nil, 0, 1)
			},
		},
		{
			name:       "a token stands still while its worker beats",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				own(w, "w2", 2, 3)
				w.looks(takeoverAfter+pollEvery, []string{"w1", "w2"}, 0, 1, 3)
			},
			take: []int{2},
		},
		{
			name:       "a new worker gets its share",
			partitions: 16,
			workers:    []string{"w1", "w2"},
			held:       firstPartitions(16),
			play: func(w *watch) {
				own(w, "w1", firstPartitions(16)...)
				w.looks(pollEvery, []string{"w2"}, firstPartitions(16)...)
			},
			giveUp: 8,
		},
		{
			name:       "what was given up is free",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0},
			play: func(w *watch) {
				own(w, "w1", 0)
				own(w, "w2", 1, 2)
				w.tokens[3] = stored("", 7, 3)
				lookOnce(w)
			},
			take: []int{3},
		},
		{
			name:       "more is free than its share",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0},
			play: func(w *watch) {
				own(w, "w1", 0)
				lookOnce(w)
			},
			take: []int{1},
		},
		{
			name:       "its own that it does not know of",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0, 1, 2)
				own(w, "w2", 3)
				lookOnce(w)
			},
			take: []int{2},
		},
		{
			name:       "a name that was removed has no share",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				lookOnce(w)
				own(w, "w1", 0, 1)
				delete(w.workers, "w2")
				lookOnce(w)
			},
			take: []int{2, 3},
		},
		{
			name:       "an unreadable token stays",
			partitions: 2,
			workers:    []string{"w1"},
			play: func(w *watch) {
				w.tokens[0] = "\x01damaged"
				w.looks(10*time.Second, nil)
			},
			take: []int{1},
		},
		{
			name:       "what was left alone is taken beyond the share",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				own(w, "w2", 2)
				w.looks(leftAloneAfter+pollEvery, []string{"w2"}, 0, 1, 2)
			},
			take: []int{3},
		},
		{
			name:       "a moment before that it is not",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				own(w, "w2", 2)
				w.looks(leftAloneAfter-pollEvery, []string{"w2"}, 0, 1, 2)
			},
		},
		{
			name:       "what was left alone is not given up again at once",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1, 2, 3},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				w.looks(leftAloneAfter+pollEvery, []string{"w2"}, 0, 1)
				w.plan(map[int]bool{0: true, 1: true}, ready, nil)
				own(w, "w1", 2, 3)
				w.looks(firstKept-time.Second, []string{"w2"}, 0, 1, 2, 3)
				delete(w.kept, 2)
			},
			giveUp: 2, // 0 and 1, or with 2; not 3
		},
		{
			name:       "a new worker may get what another has left alone",
			partitions: 2,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0)
				w.looks(leftAloneAfter+pollEvery, []string{"w2"}, 0)
				w.plan(map[int]bool{0: true}, ready, nil)
				w.keep(0)
				own(w, "w1", 1)
				delete(w.workers, "w2")
				w.workers["w3"] = "1"
				w.looks(pollEvery, []string{"w3"}, 0, 1)
			},
			giveUp: 1,
		},
		{
			name:       "one that stands back has no share, and keeps what it has",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1, 2},
			can:        standsBack,
			play: func(w *watch) {
				own(w, "w1", 0, 1, 2)
				w.looks(time.Second, []string{"w2"}, 0, 1, 2)
			},
		},
		{
			name:       "one that stands back leaves its own token to others",
			partitions: 2,
			workers:    []string{"w1", "w2"},
			can:        standsBack,
			play: func(w *watch) {
				own(w, "w1", 0)
				own(w, "w2", 1)
				w.looks(takeoverAfter+time.Second, []string{"w2"}, 1)
			},
		},
		{
			name:       "one that stands back takes what nobody has taken for long",
			partitions: 3,
			workers:    []string{"w1", "w2"},
			can:        standsBack,
			play: func(w *watch) {
				own(w, "w1", 0)
				own(w, "w2", 1)
				w.looks(leftAloneAfter+takeoverAfter, []string{"w2"}, 1)
			},
			take: []int{0, 2},
		},
		{
			name:       "one that has failed at a partition takes others",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0},
			avoid:      map[int]bool{1: true},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				w.looks(takeoverAfter+time.Second, []string{"w2"}, 0)
			},
			take: []int{2},
		},
		{
			name:       "one that stands back alone does all",
			partitions: 2,
			workers:    []string{"w1"},
			can:        standsBack,
			play:       lookOnce,
			take:       []int{0, 1},
		},
		{
			name:       "one that lacks rights gives all up",
			partitions: 3,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			can:        unfit,
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				w.looks(time.Minute, []string{"w2"}, 0, 1)
			},
			giveUp: 2,
		},
		{
			name:       "one that lacks rights and is alone keeps all",
			partitions: 3,
			workers:    []string{"w1"},
			held:       []int{0, 1},
			can:        unfit,
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				lookOnce(w)
			},
			take: []int{2},
		},
		{
			name:       "what cannot be read is left alone, the others are taken over",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0},
			play: func(w *watch) {
				own(w, "w1", 0)
				own(w, "w2", 1, 2)
				w.looks(pollEvery, nil, 0)
				w.unread = []int{2, 3}
				w.looks(time.Minute, nil, 0)
			},
			take: []int{1},
		},
		{
			name:       "no time counts in which a token could not be read",
			partitions: 2,
			workers:    []string{"w1", "w2"},
			held:       []int{0},
			play: func(w *watch) {
				own(w, "w1", 0)
				own(w, "w2", 1)
				for range 10 {
					w.looks(2*pollEvery, []string{"w2"}, 0)
					w.unread = []int{1}
					w.looks(time.Second, []string{"w2"}, 0)
					w.unread = nil
				}
			},
		},
		{
			name:       "Redis was silent for a minute",
			partitions: 4,
			workers:    []string{"w1", "w2"},
			held:       []int{0, 1},
			play: func(w *watch) {
				own(w, "w1", 0, 1)
				own(w, "w2", 2, 3)
				w.looks(time.Second, []string{"w2"}, 0, 1, 2, 3)
				w.now = w.now.Add(time.Minute)
				w.looks(time.Second, nil, 0, 1)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatch(c.partitions, c.workers...)
			c.play(w)
			held := make(map[int]bool)
			for _, p := range c.held {
				held[p] = true
			}

			take, giveUp := w.plan(held, c.can, c.avoid)

			slices.Sort(take)
			if !slices.Equal(take, c.take) || len(giveUp) != c.giveUp {
				t.Errorf("takes %v, gives up %v; want %v, %d", take, giveUp, c.take, c.giveUp)
			}
		})
	}
}

func TestGone_AreThoseWhoseCountsStandStill(t *testing.T) {
	w := newWatch(1, "w1", "w2", "w3")
	w.looks(2*time.Second, []string{"w3"})
	w.workers["w4"] = "1"
	w.looks(2*time.Second, []string{"w3"})
	for after, want := range map[time.Duration][]string{time.Second: {"w2", "w4"}, 3 * time.Second: {"w2"}, time.Minute: nil} {
		gone := w.gone(after)
		slices.Sort(gone)
		if !slices.Equal(gone, want) {
			t.Errorf("silent for %s: %v, want %v", after, gone, want)
		}
	}
}

// cluster is workers that share partitions, played in steps of pollEvery.
type cluster struct {
	*rapid.T
	now     time.Time
	tokens  []partitions.Stored
	beats   map[string]string
	workers map[string]*player
	born    int
}

type player struct {
	sharing
	held    map[int]partitions.Token
	renewed time.Time
	beaten  time.Time
}

func (c *cluster) join() {
	c.born++
	name := fmt.Sprintf("%c%d", 'a'+rapid.IntRange(0, 25).Draw(c.T, "letter"), c.born)
	c.workers[name] = &player{sharing: sharing{worker: name}, held: make(map[int]partitions.Token)}
}

func (c *cluster) pick() *player {
	return c.workers[rapid.SampledFrom(slices.Sorted(maps.Keys(c.workers))).Draw(c.T, "worker")]
}

func (c *cluster) leave(p *player) {
	for number, token := range p.held {
		token.Owner = ""
		c.write(p, number, token)
	}
	delete(c.beats, p.worker)
	delete(c.workers, p.worker)
}

// write is a step of an owner; it loses what somebody else has taken.
func (c *cluster) write(p *player, number int, token partitions.Token) {
	was := p.held[number]
	if c.tokens[number] != was.Stored() {
		delete(p.held, number)
		return
	}

	token.Sequence++
	c.tokens[number], p.held[number] = token.Stored(), token
	if token.Owner == "" {
		delete(p.held, number)
	}
}

func (c *cluster) poll(p *player) {
	if c.now.Sub(p.beaten) >= beatEvery {
		c.beats[p.worker] += "1"
		p.beaten = c.now
	}

	if c.now.Sub(p.renewed) >= renewEvery {
		for number, token := range maps.Clone(p.held) {
			c.write(p, number, token)
		}
		p.renewed = c.now
	}

	p.observe(len(c.tokens), numbered(c.tokens), c.beats, c.now)
	held := make(map[int]bool)
	for number := range p.held {
		held[number] = true
	}

	take, giveUp := p.plan(held, ready, nil)
	for _, number := range take {
		token, _ := c.tokens[number].Token()
		token.Owner, token.Epoch = p.worker, token.Epoch+1
		c.tokens[number], p.held[number] = token.Stored(), token
	}

	for _, number := range giveUp {
		token := p.held[number]
		token.Owner = ""
		c.write(p, number, token)
	}
}

// pass lets all workers poll, in any order; nobody ever holds what another one does.
func (c *cluster) pass(d time.Duration) {
	for ; d > 0; d -= pollEvery {
		c.now = c.now.Add(pollEvery)
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(c.workers))).Draw(c.T, "order") {
			c.poll(c.workers[name])
		}

		holders := make(map[int]string)
		for name, p := range c.workers {
			for number := range p.held {
				if other := holders[number]; other != "" {
					c.Fatalf("%s and %s hold partition %d", name, other, number)
				}
				holders[number] = name
			}
		}
	}
}

// However workers come, leave and die, the living soon share all partitions evenly.
func TestSharing_ConvergesToAnEvenSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "partitions")
		c := &cluster{T: t, now: time.Unix(1_795_284_000, 0), tokens: make([]partitions.Stored, count), beats: make(map[string]string), workers: make(map[string]*player)}
		c.join()
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				if len(c.workers) > 1 {
					c.leave(c.pick())
				}
			case 1:
				if len(c.workers) > 1 {
					delete(c.workers, c.pick().worker) // dies
				}
			default:
				c.join()
			}

			c.pass(time.Duration(rapid.IntRange(1, 20).Draw(t, "polls")) * pollEvery)
		}

		c.pass(2*takeoverAfter + time.Second)
		least, most, sum := count, 0, 0
		for _, p := range c.workers {
			least, most, sum = min(least, len(p.held)), max(most, len(p.held)), sum+len(p.held)
		}

		if sum != count || most-least > 1 {
			t.Fatalf("%d of %d partitions are held by %d workers, %d to %d each", sum, count, len(c.workers), least, most)
		}
	})
}
