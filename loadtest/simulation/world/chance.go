package world

import (
	"hash/fnv"
	"math/rand/v2"
)

// chance is a source of its own for each who draws, so that what one draws does not depend on what others do.
func (w *world) chance(who string) *rand.Rand {
	name := fnv.New64a()
	name.Write([]byte(who))
	return rand.New(rand.NewPCG(w.seed, name.Sum64()))
}

func draw[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// percent reports whether something happens that does so in that many of a hundred cases.
func percent(random *rand.Rand, n int) bool { return random.IntN(100) < n }
