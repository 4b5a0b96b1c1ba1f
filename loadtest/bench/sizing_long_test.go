//go:build long

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// figured is a sizing whose needs can be computed in the head.
func figured() *sizing {
	return &sizing{
		Costs: orderCosts{
			RedisMicros: 100, GatewayMicros: 200, WorkerMicros: 400, FileBytes: 10_000, Flushes: 0.5,
			RedisIn: 6000, RedisOut: 4000, Webhooks: 5, WebhookBytes: 5000, RequestBytes: 900, AnswerBytes: 600,
			LiveBytes: 1000, IDBytes: 20,
		},
		Choices: sizingDecision{
			Utilisation: 0.5, DayToPeak: 0.25, LiveDays: 10, IDYears: 1, ProgramCores: 4, MasterMemory: 60, PerMaster: 8, LeastPartitions: 16,
		},
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	want := map[string]float64{
		"orders a day":                          21.6, // 1000 x 86,400 / 4, in millions
		"Redis masters, by CPU":                 1,    // 0.1 s a second, 0.2 at half use
		"memory of live orders":                 216,  // 216 million of 1 kB
		"memory of retired ids":                 157.68,
		"Redis masters, by memory":              7, // 373.68 GB in 60 GB each
		"partitions, 1,024 at most":             64,
		"gateways":                              1,
		"workers":                               1,
		"disk, all masters, rewriting included": 20,
		"fsyncs, all masters, at most":          500,
		"network of Redis":                      10,
		"network of vendors, creations":         1.5,
		"webhooks":                              5000,
		"network of webhooks":                   5,
	}
	for _, n := range needs {
		got, measured := n.of(figured(), 1000)
		if !measured || got < want[n.what]*0.999999 || got > want[n.what]*1.000001 {
			t.Errorf("%s: %v, want %v", n.what, got, want[n.what])
		}
	}
	if len(needs) != len(want) {
		t.Errorf("%d rows, %d of them checked", len(needs), len(want))
	}
}

// Ten times the rate needs ten times as much, rounded up once and not per part.
func TestNeeds_Grow(t *testing.T) {
	t.Parallel()
	s := figured()
	for what, want := range map[string]float64{"Redis masters, by CPU": 20, "gateways": 10, "workers": 20, "Redis masters, by memory": 623, "partitions, 1,024 at most": 8192} {
		for _, n := range needs {
			if got, _ := n.of(s, 100_000); n.what == what && got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
}

func TestReadSizing_Refuses(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile("sizing.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"an unknown key":     {`"live_days"`, `"life_days"`},
		"a use beyond all":   {`"utilisation": `, `"utilisation": 1`},
		"no cost":            {`"delivered.redis_us": `, `"delivered.redis_us": -`},
		"a choice forgotten": {`"partitions_per_master": `, `"partitions_per_master": -`},
	} {
		content := strings.Replace(string(good), change[0], change[1], 1)
		path := filepath.Join(t.TempDir(), "sizing.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSizing(path); err == nil || content == string(good) {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestParseRates(t *testing.T) {
	t.Parallel()
	if got, err := parseRates("10000, 2.5"); err != nil || len(got) != 2 || got[0] != 10_000 || got[1] != 2.5 {
		t.Errorf("%v, %v", got, err)
	}
	for _, list := range []string{"", "0", "-1", "1,", "many", "Inf"} {
		if got, err := parseRates(list); err == nil {
			t.Errorf("%q: %v", list, got)
		}
	}
}
