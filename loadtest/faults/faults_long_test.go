//go:build long

package main

import (
	"cmp"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

func TestCommand_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()

	for _, args := range []string{"x", "-workers 4", "-duration 0s", "-seed -1",
		"mutants -duration 1m", "mutants -overload", "overload", "-overload -replica", "-overload -cluster"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q was taken", args)
		}
	}

	for name, o := range map[string]options{
		"unknown":                    {only: "kill-redis,kill-cat", replica: true},
		"needs a replica":            {only: "kill-redis,split"},
		"needs a cluster":            {only: "kill-redis,master-away"},
		"needs one Redis":            {only: "kill-redis,aof-cut", cluster: true},
		"needs replicas":             {only: "failover", cluster: true},
		"needs masters without them": {only: "master-away", cluster: true, replica: true},
		"has one Redis of its own":   {only: "load", cluster: true},
		"has no replica of its own":  {only: "load", replica: true},
	} {
		if _, err := loadFaults(&o); err == nil {
			t.Errorf("a fault was taken: %s", name)
		}
	}
}

func TestDraw_EveryFaultAloneAndThenPairs(t *testing.T) {
	t.Parallel()

	faults, err := loadFaults(new(options))
	if err != nil {
		t.Fatal(err)
	}

	s := &suite{options: options{seed: 3, duration: 10 * time.Minute}, random: rand.New(rand.NewPCG(3, 0))}
	again := &suite{options: s.options, random: rand.New(rand.NewPCG(3, 0))}

	for n := 1; n < 2*len(faults); n++ {
		r, same := s.draw(n, faults), again.draw(n, faults)
		want := 2
		if n <= len(faults) {
			want = 1
		}

		if len(r.faults) != want || want == 1 && r.faults[0].Name != faults[n-1].Name {
			t.Fatalf("round %d plays %v", n, r.name())
		}
		if want == 2 && r.faults[0].Name == r.faults[1].Name {
			t.Fatalf("round %d plays one fault twice", n)
		}
		if r.name() != same.name() || r.seed != same.seed || r.workers != same.workers {
			t.Fatalf("the same seed draws %s and %s", r.name(), same.name())
		}
	}

	short := &suite{options: options{duration: time.Minute}, random: rand.New(rand.NewPCG(3, 0))}
	if r := short.draw(1, faults); len(r.faults) != 2 {
		t.Errorf("a short run begins with %v", r.name())
	}

	replacing, err := loadFaults(&options{only: "kill-redis,split", replica: true})
	if r := s.draw(1, replacing); err != nil || len(r.faults) != 1 || r.name() != "kill-redis" {
		t.Errorf("%v: %v", r.name(), err)
	}
	if r := s.draw(3, replacing); r.name() != "split" {
		t.Errorf("a master is replaced beside another fault: %v", r.name())
	}
}

// Every fault names processes and proxies that there are, and has what its action needs.
func TestLoadFaults_AreComplete(t *testing.T) {
	t.Parallel()

	all, err := readTable("faults.yaml", "", func(f fault) string { return f.Name })
	if err != nil {
		t.Fatal(err)
	}

	faults, own := bySystem(all)
	proxies := []string{"gateway", "gateway-redis", "worker-redis", "spares-redis", "reporting-redis", "clickhouse"}
	for _, f := range faults {
		named := slices.Clone(f.Proxies)
		for _, w := range f.At {
			named = append(named, w.Proxy, cmp.Or(w.Or, w.Proxy))
			if len(w.markers()) == 0 {
				t.Errorf("%s waits for nothing on %s", f.Name, w.Proxy)
			}
		}

		for _, proxy := range named {
			if !slices.Contains(proxies, proxy) {
				t.Errorf("%s names proxy %q", f.Name, proxy)
			}
		}

		if f.Process != "" && !slices.Contains([]string{"gateway", "worker", "reporting", "clickhouse", "redis"}, f.Process) {
			t.Errorf("%s names process %q", f.Name, f.Process)
		}

		wantsProcess := slices.Contains([]string{"crash", "stop", "pause", "slow-fsync", "tear-aof", "cut-aof"}, f.Action)
		wantsWay := slices.Contains([]string{"lose", "late", "hold"}, f.Action)
		if f.Does == "" || f.Expect == "" || actions[f.Action] == nil || wantsProcess != (f.Process != "") || wantsWay && len(f.At) == 0 ||
			slices.Contains([]string{"pause", "partition", "delay"}, f.Action) != (len(f.Length) == 2) || f.Action == "partition" && len(f.Proxies) == 0 ||
			len(f.Proxies) > 0 && f.Action != "partition" && f.Action != "delay" ||
			f.Every != nil && len(f.Every) != 2 || f.Workers != nil && (len(f.Workers) != 2 || f.Workers[0] < 1 || f.Workers[1] > maxWorkers) || (f.Action == "lose" || f.Action == "crash" && len(f.At) > 0) != (len(f.Moments) > 0) {
			t.Errorf("%+v is not complete", f)
		}
	}

	if len(faults) != 39 {
		t.Errorf("%d faults on the run's system, want 39", len(faults))
	}

	parts := []part{courier, shim, reporting, fewPlaces, onePartition}
	isUnknown := func(p part) bool { return !slices.Contains(parts, p) }
	for _, f := range own {
		if f.Does == "" || f.Expect == "" || ownActions[f.Action] == nil || slices.ContainsFunc(f.System, isUnknown) {
			t.Errorf("%+v is not complete", f)
		}

		// Nothing else of a fault has a meaning for an action on a system of its own.
		unused := f
		unused.Name, unused.Does, unused.Expect, unused.Action, unused.System = "", "", "", "", nil
		if !reflect.DeepEqual(unused, fault{}) {
			t.Errorf("%s has what its action does not use: %+v", f.Name, unused)
		}
	}

	if len(own) != len(ownActions) {
		t.Errorf("%d faults with systems of their own, want %d", len(own), len(ownActions))
	}
}

func TestValidateAgain(t *testing.T) {
	t.Parallel()

	path := t.TempDir() + "/" + roundFile
	if err := run(t.Context(), []string{"-validate", path}, io.Discard); err == nil {
		t.Error("validated without a record")
	}

	rec := record{Facts: &validate.Facts{}}
	for _, wrong := range []bool{false, true} {
		if wrong {
			rec.Facts.Found = []validate.Violation{{Invariant: validate.Unreadable}}
		}

		if err := harness.WriteJSON(path, rec, io.Discard); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), []string{"-validate", path}, io.Discard); (err != nil) != wrong {
			t.Errorf("violations %t: %v", wrong, err)
		}
	}
}

func TestVendorClient_KeepsItsConnectionAndSendsOnce(t *testing.T) {
	t.Parallel()

	var requests, connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path == "/break" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "{}")
	}))

	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}

	server.Start()
	defer server.Close()

	c := newVendorClient(0, "", &vendor{Vendor: &stack.Vendor{Client: &client.Client{}}}, server.URL, nil)
	key := []string{"X-Idempotency-Key", "k"}

	for _, step := range []struct {
		method, path          string
		answered              bool
		requests, connections int64
	}{
		{http.MethodPost, "/", true, 1, 1},
		{http.MethodPost, "/", true, 2, 1},
		{http.MethodGet, "/", true, 3, 2},
		{http.MethodGet, "/break", false, 4, 3},
		{http.MethodPost, "/break", false, 5, 3}, // on the kept connection
		{http.MethodPost, "/", true, 6, 4},
	} {
		var body any
		if step.method == http.MethodPost {
			body = []byte("{}")
		}

		_, err := c.api.Do(t.Context(), step.method, step.path, body, key...)
		if (err == nil) != step.answered || requests.Load() != step.requests || connections.Load() != step.connections {
			t.Errorf("%+v: %d requests, %d connections, %v", step, requests.Load(), connections.Load(), err)
		}
	}
}
