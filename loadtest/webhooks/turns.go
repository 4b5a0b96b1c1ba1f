package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/loadtest/harness"
)

// turn is one half of a comparison, measured once.
type turn struct {
	waits   []float64 // from commit to receipt, milliseconds
	leftOut float64   // share of the events that were left out, see noise
}

// newTurn leaves out what others disturbed; all of it counts when nothing else
// would be left.
func newTurn(waits []wait, n noise) (t turn, err error) {
	var all []float64
	for _, w := range waits {
		milliseconds := float64(w.took) / float64(time.Millisecond)
		all = append(all, milliseconds)
		if !n.around(w.issued) {
			t.waits = append(t.waits, milliseconds)
		}
	}
	if len(all) == 0 {
		return t, errors.New("nothing was received")
	}
	t.leftOut = 1 - float64(len(t.waits))/float64(len(all))
	if len(t.waits) < len(all)/10 {
		t.waits, t.leftOut = all, 1
	}
	return t, nil
}

func (t *turn) disturbance() float64 { return t.leftOut }
func (t *turn) calm() bool           { return t.leftOut <= mostLeftOut }

func (t *turn) String() string {
	text := fmt.Sprintf("p50 %s ms, p99 %s ms", harness.Number(harness.Quantile(t.waits, 0.50)), harness.Number(harness.Quantile(t.waits, 0.99)))
	if t.leftOut > 0 {
		text += fmt.Sprintf(" (others were busy for %.0f %%)", 100*t.leftOut)
	}
	return text
}

// pair is both halves, measured one after the other.
type pair struct{ with, without turn }

func (p *pair) disturbance() float64 { return max(p.with.leftOut, p.without.leftOut) }
func (p *pair) calm() bool           { return p.with.calm() && p.without.calm() }

const (
	// mostLeftOut is the share of its events that a calm turn may lose.
	mostLeftOut = 0.5
	// spare is how many rounds may be added for those that were disturbed.
	spare = 1
)

// calmest measures rounds until enough of them were calm or the spare ones are
// used up. It answers the calm ones; if there are none, as many as were asked
// for, the least disturbed.
func calmest[R any, P interface {
	*R
	disturbance() float64
	calm() bool
}](b *bench, measure func(round int) (R, error)) ([]R, error) {
	most := b.rounds + spare
	if b.quick {
		most = b.rounds
	}
	var rounds []R
	calmOnes := 0
	for calmOnes < b.rounds && len(rounds) < most {
		r, err := measure(len(rounds))
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
		if P(&r).calm() {
			calmOnes++
		}
	}
	slices.SortStableFunc(rounds, func(p, q R) int { return cmp.Compare(P(&p).disturbance(), P(&q).disturbance()) })
	if calmOnes == 0 {
		calmOnes = b.rounds
	}
	return rounds[:calmOnes], nil
}

// takeTurns measures both halves in turn, so that the machine's moods fall on
// both; who is first changes with every round.
func (b *bench) takeTurns(part string, measure func(round int, with bool) (turn, error)) ([]pair, error) {
	return calmest(b, func(round int) (p pair, err error) {
		for _, with := range []bool{round%2 == 0, round%2 == 1} {
			half := &p.without
			if with {
				half = &p.with
			}
			if *half, err = measure(round, with); err != nil {
				return p, err
			}
		}
		b.progress("%s %d: with %s; without %s", part, round+1, &p.with, &p.without)
		return p, nil
	})
}

// compare tells of both halves, and judges the ratio of their p99s.
func compare(part, what string, pairs []pair) []harness.Figure {
	var ratios, p50, p50Alone, p99, p99Alone, leftOut, waits, waitsAlone []float64
	for i := range pairs {
		with, without := &pairs[i].with, &pairs[i].without
		p50, p50Alone = append(p50, harness.Quantile(with.waits, 0.50)), append(p50Alone, harness.Quantile(without.waits, 0.50))
		p99, p99Alone = append(p99, harness.Quantile(with.waits, 0.99)), append(p99Alone, harness.Quantile(without.waits, 0.99))
		ratios = append(ratios, p99[i]/p99Alone[i])
		leftOut = append(leftOut, 100*pairs[i].disturbance())
		waits, waitsAlone = append(waits, with.waits...), append(waitsAlone, without.waits...)
	}
	pooled := []float64{harness.Quantile(waits, 0.99) / harness.Quantile(waitsAlone, 0.99)}
	return []harness.Figure{
		{Key: part + ".p99_ratio", Title: what + ": p99, times that without", Rounds: ratios, Limit: harness.AtMost(1.5)},
		{Key: part + ".p99_ratio_pooled", Title: "  the same of all rounds' events together", Rounds: pooled},
		{Key: part + ".p50", Title: "  p50", Unit: "ms", Rounds: p50},
		{Key: part + ".p50_without", Title: "  p50 without", Unit: "ms", Rounds: p50Alone},
		{Key: part + ".p99", Title: "  p99", Unit: "ms", Rounds: p99},
		{Key: part + ".p99_without", Title: "  p99 without", Unit: "ms", Rounds: p99Alone},
		{Key: part + ".left_out", Title: "  events left out because others were busy", Unit: "%", Rounds: leftOut},
	}
}
