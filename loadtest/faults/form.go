package main

import "time"

// form is how long and how hard the rounds on systems of their own are.
type form struct {
	wide, ordinary int           // vendors: with limits out of reach, and with those of every vendor
	phase          time.Duration // of each step of a round
	timeout        time.Duration // for what has no figure of its own

	// share of the requests must be answered as they should, the others with 503 or not at all. No answer may be wrong.
	share    float64
	quick    time.Duration // 99 % of the refusals take less
	recovery time.Duration // back to normal within
	normal   time.Duration // a p99 that is normal whatever it was before

	// Of an overload: how long it lasts, how many times the sustainable rate it is, over how many connections, and the
	// gateway's MAX_IN_FLIGHT; empty: the default.
	load        time.Duration
	times       float64
	connections int
	maxInFlight string

	pastTime int // ended orders and entries of streams that fill Redis's memory, together

	// Beside a neighbour: how long one measurement lasts, without or beside it, the share of the healthy vendor's orders
	// that must be sent when they fall due, by how much its p99 may grow, and how many fleets the neighbour has.
	neighbour time.Duration
	punctual  float64
	ratio     float64
	fleets    int
}

// wholeForm is the form of a run.
var wholeForm = form{
	wide:     40,
	ordinary: 10,
	phase:    5 * time.Second,
	timeout:  time.Minute,

	share:    1,
	quick:    time.Second,
	recovery: 5 * time.Second,
	normal:   25 * time.Millisecond,

	load:        time.Minute,
	times:       10,
	connections: 2048,

	pastTime: 100_000,

	neighbour: 8 * time.Second,
	punctual:  0.999,
	ratio:     1.5,
	fleets:    100,
}
