// Package chance stands for math/rand/v2 in the programs of a simulation: it draws the same numbers for the same seed.
package chance

import (
	"math/rand/v2"
	"sync"
)

// Slower is by how much those intervals of the programs are longer that pass while nothing happens: a day of them must
// not cost as many steps as a day has seconds. Their ratios stay as they are.
const Slower = 600

var (
	mu     sync.Mutex
	source = rand.New(rand.NewPCG(0, 0))
)

// Seed begins again.
func Seed(seed uint64) {
	mu.Lock()
	defer mu.Unlock()
	source = rand.New(rand.NewPCG(seed, 2))
}

// Uint64 is rand.Uint64.
func Uint64() uint64 {
	mu.Lock()
	defer mu.Unlock()
	return source.Uint64()
}

// Uint32 is rand.Uint32.
func Uint32() uint32 { return uint32(Uint64() >> 32) }

// Float64 is rand.Float64.
func Float64() float64 { return float64(Uint64()>>11) / (1 << 53) }

// N is rand.N for times, and for other signed integers.
func N[Int ~int | ~int64](n Int) Int {
	if n <= 0 {
		panic("chance: n must be more than 0")
	}
	return Int(Uint64() % uint64(n))
}
