//go:build long

package main

import (
	"slices"
	"testing"
	"time"

	"vendorapi/loadtest/harness"
)

func TestCalmest_IsChosenByWhatOthersTook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		leftOut []float64 // round by round
		want    []int
	}{
		{"calm", []float64{0.1, 0, 0.5}, []int{1, 0, 2}},
		{"one disturbed", []float64{0.1, 1, 0.2, 0.05}, []int{3, 0, 2}},
		{"all but one disturbed", []float64{1, 1, 0.2, 0.6}, []int{2}},
		{"all disturbed", []float64{1, 0.9, 0.8, 0.7}, []int{3, 2, 1}},
	} {
		measured := 0
		rounds, err := calmest(&bench{flags: flags{rounds: 3}}, func(round int) (turn, error) {
			measured++
			return turn{leftOut: c.leftOut[round], waits: []float64{float64(round)}}, nil
		})
		var got []int
		for _, r := range rounds {
			got = append(got, int(r.waits[0]))
		}
		if err != nil || measured != len(c.leftOut) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v of %d, %v", c.name, got, measured, err)
		}
	}
}

func TestTurn_LeavesOutWhatOthersDisturbed(t *testing.T) {
	t.Parallel()
	var waits []wait
	for i := range 100 { // one every 100 ms, those about 3 s are slow
		took := 2 * time.Millisecond
		if i >= 29 && i <= 33 {
			took = 90 * time.Millisecond
		}
		waits = append(waits, wait{moment(i) * 100 * time.Millisecond, took})
	}
	got, err := newTurn(waits, noise{{3 * time.Second, 3100 * time.Millisecond}})
	if err != nil || harness.Quantile(got.waits, 1) != 2 || len(got.waits) != 95 || got.leftOut < 0.049 || got.leftOut > 0.051 {
		t.Errorf("%v of %d, %v", got.leftOut, len(got.waits), err)
	}
	if got, err = newTurn(waits, nil); err != nil || len(got.waits) != 100 || got.leftOut != 0 || harness.Quantile(got.waits, 0.99) != 90 {
		t.Errorf("calm: %v, %v", got, err)
	}
	if got, err = newTurn(waits, noise{{0, time.Minute}}); err != nil || len(got.waits) != 100 || got.leftOut != 1 {
		t.Errorf("all disturbed: %v, %v", got, err)
	}
	if _, err = newTurn(nil, nil); err == nil {
		t.Error("nothing was received, and nobody says so")
	}
}
