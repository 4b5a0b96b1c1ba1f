package main

import (
	"testing"
	"time"
)

func TestMostWithin_CountsTheFullestSpan(t *testing.T) {
	at := time.Now()
	var times []time.Time
	for _, second := range []int{0, 1, 2, 9, 10, 11, 12, 30} {
		times = append(times, at.Add(time.Duration(second)*time.Second))
	}

	if got := mostWithin(times, 10*time.Second); got != 4 {
		t.Errorf("%d within 10 s, want 4", got)
	}
}
