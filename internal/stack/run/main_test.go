package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func getenv(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

//rule:make-run/DATA_DIR make-run/GATEWAY_ADDR make-run/OPS_ADDR make-run/PANEL_ADDR make-run/REDIS_URL make-run/CLICKHOUSE_URL make-run/COURIER
//rule:make-run/COURIER_STEP
func TestOptions_HaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()

	o, err := options(getenv(nil), io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	if o.DataDir != ".data" || o.GatewayAddr != "127.0.0.1:8080" || o.OpsAddr != "127.0.0.1:8081" || o.RedisURL != "" ||
		!o.Reporting || o.PanelAddr != "127.0.0.1:8090" || o.ClickHouseAddr != "127.0.0.1:8123" || o.ClickHouseURL != "" ||
		o.Courier != "auto" || o.CourierStep != 5*time.Second || !o.Receiver {
		t.Errorf("%+v", o)
	}
}

//rule:make-run/DATA_DIR make-run/GATEWAY_ADDR make-run/OPS_ADDR make-run/PANEL_ADDR make-run/REDIS_URL make-run/CLICKHOUSE_URL make-run/COURIER
//rule:make-run/COURIER_STEP
func TestOptions_TakeEveryVariable(t *testing.T) {
	t.Parallel()

	o, err := options(getenv(map[string]string{
		"DATA_DIR": "d", "GATEWAY_ADDR": "g:1", "OPS_ADDR": "o:2", "WORKER_OPS_ADDR": "w:3", "RECEIVER_ADDR": "r:4",
		"REDIS_URL": "redis://x", "CLICKHOUSE_URL": "http://c", "CLICKHOUSE_ADDR": "c:5", "PANEL_ADDR": "p:6", "REPORTING_OPS_ADDR": "x:7", "COURIER": "manual", "COURIER_STEP": "250ms",
	}), io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	if o.DataDir != "d" || o.GatewayAddr != "g:1" || o.OpsAddr != "o:2" || o.WorkerOpsAddr != "w:3" || o.ReceiverAddr != "r:4" ||
		o.ClickHouseURL != "http://c" || o.ClickHouseAddr != "c:5" || o.PanelAddr != "p:6" || o.ReportingOpsAddr != "x:7" ||
		o.RedisURL != "redis://x" || o.Courier != "manual" || o.CourierStep != 250*time.Millisecond {
		t.Errorf("%+v", o)
	}
}

func TestOptions_TakeAVariableFromAFile(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("redis://u:geheim@h:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	o, err := options(getenv(map[string]string{"REDIS_URL_FILE": file, "CLICKHOUSE_URL": "http://c"}), io.Discard)
	if err != nil || o.RedisURL != "redis://u:geheim@h:1" || o.ClickHouseURL != "http://c" {
		t.Errorf("%+v, %v", o, err)
	}
	_, err = options(getenv(map[string]string{"REDIS_URL_FILE": file, "REDIS_URL": "redis://x", "CLICKHOUSE_URL_FILE": file + ".none"}), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "REDIS_URL and REDIS_URL_FILE are both set") || !strings.Contains(err.Error(), "CLICKHOUSE_URL_FILE: ") {
		t.Error(err)
	}
}

func TestOptions_Refuse(t *testing.T) {
	t.Parallel()

	for variable, value := range map[string]string{"COURIER": "robot", "COURIER_STEP": "soon"} {
		if _, err := options(getenv(map[string]string{variable: value}), io.Discard); err == nil ||
			!strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s: %v", variable, value, err)
		}
	}

	if _, err := options(getenv(map[string]string{"COURIER_STEP": "0s"}), io.Discard); err == nil {
		t.Error("COURIER_STEP=0s accepted")
	}
}

//rule:make-run/other-programs-on-the-machine
func TestIfFree_GivesWayToOthers(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	addr := l.Addr().String()
	if got := ifFree(addr); got != "" {
		t.Errorf("a taken address: %q", got)
	}

	l.Close()
	if got := ifFree(addr); got != addr {
		t.Errorf("a free address: %q", got)
	}
}
