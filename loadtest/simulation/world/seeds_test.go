//go:build simulation

package world_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/pprof"
	"strconv"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"vendorapi/gateway"
	"vendorapi/internal/ledger"
	"vendorapi/loadtest/simulation/world"
	"vendorapi/reporting/archive"
	"vendorapi/worker/dispatch"
)

// TestSeeds plays the seeds from SIMULATION_FIRST on, SIMULATION_COUNT of them, and writes a line of JSON for each.
func TestSeeds(t *testing.T) {
	first, count := number(t, "SIMULATION_FIRST"), number(t, "SIMULATION_COUNT")
	server, err := world.StartServer(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	seams := world.Seams{
		Module:  os.Getenv("SIMULATION_MODULE"),
		Gateway: openGateway,
		Receive: func(receive func(context.Context, string, http.Header, []byte) world.Reception) {
			dispatch.Receive = func(ctx context.Context, url string, header http.Header, body []byte) dispatch.Received {
				return dispatch.Received(receive(ctx, url, header, body))
			}
		},
		Store: func(store func(context.Context, *archive.Batch) error) { archive.Store = store },
	}
	if out := os.Getenv("SIMULATION_PROFILE"); out != "" {
		file, _ := os.Create(out)
		_ = pprof.StartCPUProfile(file)
		time.AfterFunc(30*time.Second, func() { pprof.StopCPUProfile(); file.Close(); os.Exit(3) })
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			var judge func() *world.Verdict
			began := time.Now()
			synctest.Test(t, func(t *testing.T) {
				judge = world.Play(server, seams, seed, os.Getenv("SIMULATION_STORY") != "")
			})
			verdict := judge()
			verdict.Took = time.Since(began)
			line, err := json.Marshal(verdict)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("verdict %s\n", line)
		})
	}
}

func openGateway(work context.Context, file string, log *slog.Logger, change func(*ledger.Config)) (world.Gateway, error) {
	return gateway.NewSimulated(work, file, log, change)
}

func number(t *testing.T, variable string) uint64 {
	n, err := strconv.ParseUint(os.Getenv(variable), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
