package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"vendorapi/internal/testenv/overlay"
)

// A substitution replaces a text of Go's runtime, which stands in its file exactly once.
type substitution struct {
	file, text, with string
}

// substitutions are the lines by which Go's runtime decides at random, or by elapsed time, which goroutine of a bubble
// goes on, and with what. In a bubble they follow the seed, so that two lives of one seed are the same.
var substitutions = []substitution{
	// The order of a map's elements: where a walk begins, and how keys are hashed. It is the same for every seed.
	{file: "runtime/rand.go", text: "func maps_rand() uint64 {\n\treturn rand()", with: "func maps_rand() uint64 {\n\treturn 0"},
	{file: "runtime/alg.go", text: "hashkey[i] = uintptr(bootstrapRand())", with: "hashkey[i] = uintptr(i) * 0x9e3779b1"},
	{file: "runtime/alg.go", text: "key[i] = bootstrapRand()", with: "key[i] = uint64(i+1) * 0x9e3779b97f4a7c15"},

	// Which of several ready channels a select takes, and which of several timers of one time comes first.
	{file: "runtime/select.go", text: "j := cheaprandn(uint32(norder + 1))", with: "j := simulatedDraw() % uint32(norder+1)"},
	{file: "runtime/time.go", text: "t.rand = cheaprand()", with: "t.rand = simulatedDraw()"},
	{file: "runtime/synctest.go", text: "type synctestBubble struct {", with: drawFunction + "type synctestBubble struct {\n\tsimulatedDraws uint32"},
	{file: "runtime/synctest.go", text: "bubble := &synctestBubble{", with: "bubble := &synctestBubble{\n\t\tsimulatedDraws: SimulatedSeed,"},

	// After how many nanoseconds a goroutine makes place for another one: never.
	{file: "runtime/proc.go", text: "const forcePreemptNS = 10 * 1000 * 1000", with: "const forcePreemptNS = 1 << 60"},

	// After how long a goroutine that waits for a file makes place for another one: never.
	{file: "runtime/proc.go", text: "\t\t// On the one hand we don't want to retake Ps", with: keepInBubble + "\t\t// On the one hand we don't want to retake Ps"},

	// When memory is given back to the system, by a goroutine that takes the turn of another one: never.
	{file: "runtime/mgcscavenge.go", text: "if lastHeapGoal == 0 {", with: "if true {"},
}

// keepInBubble lets the thread of a goroutine of a bubble keep its P through a system call.
const keepInBubble = `		if thread.gp.bubble != nil {
			thread.resume()
			goto done
		}

`

// drawFunction draws for the bubble of the goroutine; outside of bubbles chance stays what it is.
const drawFunction = `// SimulatedSeed is where the draws of the next bubble begin.
var SimulatedSeed uint32

func simulatedDraw() uint32 {
	bubble := getg().bubble
	if bubble == nil {
		return cheaprand()
	}
	bubble.simulatedDraws = bubble.simulatedDraws*1664525 + 1013904223
	return bubble.simulatedDraws >> 8
}

`

// makeRepeatable makes the substitutions. With a Go whose runtime has other texts it fails, and the error names them.
func makeRepeatable(ctx context.Context, o *overlay.Overlay, module string) error {
	command := exec.CommandContext(ctx, "go", "env", "GOROOT")
	command.Dir = module
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("where Go is: %w", err)
	}

	source := filepath.Join(strings.TrimSpace(string(output)), "src")

	for _, s := range substitutions {
		file := filepath.Join(source, s.file)
		text, err := o.Read(file)
		if err != nil {
			return err
		}

		if strings.Count(string(text), s.text) != 1 {
			return fmt.Errorf("%s of this release of Go does not have %q once: the substitutions must be fitted to it", s.file, s.text)
		}

		o.Set(file, []byte(strings.Replace(string(text), s.text, s.with, 1)))
	}

	return nil
}
