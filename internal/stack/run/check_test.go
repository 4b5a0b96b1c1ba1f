package main

import (
	"strings"
	"testing"
)

func TestCheckVariables_SaysWhatIsInForce(t *testing.T) {
	t.Parallel()

	var out strings.Builder
	err := checkVariables(getenv(map[string]string{"GATEWAY_ADDR": "127.0.0.1:9", "REDIS_URL": "redis://u:geheim@h:1", "COURIER": "manual"}), &out)
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"# make run: ok\n", "GATEWAY_ADDR       127.0.0.1:9\n", "REDIS_URL          redis://u:xxxxx@h:1\n",
		"CLICKHOUSE_URL     (started by this run)\n", "DATA_DIR           .data\n", "COURIER            manual\n", "COURIER_STEP       5s\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestCheckVariables_NamesEveryWrongOne(t *testing.T) {
	t.Parallel()

	var out strings.Builder
	err := checkVariables(getenv(map[string]string{
		"GATEWAY_ADDR": "8080", "PANEL_ADDR": "127.0.0.1:http", "REDIS_URL": "u:geheim@h", "COURIER_STEP": "soon"}), &out)
	if err == nil || out.Len() > 0 {
		t.Fatalf("%v, and it wrote %q", err, out.String())
	}

	for _, want := range []string{"GATEWAY_ADDR: ", "PANEL_ADDR: ", "REDIS_URL: ", "COURIER_STEP"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}

	if strings.Contains(err.Error(), "geheim") {
		t.Errorf("a password is shown: %v", err)
	}
}
