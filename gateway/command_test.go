package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/shipped"
	"vendorapi/internal/testenv/testserver"
)

// The tests of the command set the process's environment, so they do not run
// beside others.

// setEnvironment sets what the shipped settings need, and then the changes, given
// as names and values.
func setEnvironment(t *testing.T, changes ...string) {
	t.Helper()
	encoded := base64.StdEncoding.EncodeToString(key32('k'))
	for variable, value := range map[string]string{
		"GATEWAY_ADDR": "127.0.0.1:0", "OPS_ADDR": "127.0.0.1:0", "ADMIN_KEY": adminKey, "ENVIRONMENT": delivery.Sandbox,
		"REDIS_URL": "rediss://gateway:geheim@127.0.0.1:1", "TLS_CERT_FILE": "", "TLS_KEY_FILE": "",
		"TOKEN_KEYS": "t1:" + encoded, "TRACKING_KEYS": "k1:" + encoded, "WEBHOOK_KEYS": "w1:" + encoded, "LOG_LEVEL": "",
	} {
		t.Setenv(variable, value)
	}

	for i := 0; i+1 < len(changes); i += 2 {
		t.Setenv(changes[i], changes[i+1])
	}
}

// Nothing listens at the address of Redis: neither is it asked.
func TestCheckConfig_SaysWhatIsInForce(t *testing.T) {
	setEnvironment(t)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--check-config", "--config", "../configs/gateway.yaml"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"# ../configs/gateway.yaml: ok\n", "max_in_flight: 512", "read_timeout: 10s", "max_in_flight_per_account: 64", "max_body_bytes_in_flight: 67108864", "fleets_stale_after: 10s", "rediss://gateway:xxxxx@127.0.0.1:1", "TOKEN_KEYS     from the environment"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}

	for _, secret := range []string{"geheim", adminKey, base64.StdEncoding.EncodeToString(key32('k'))} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is shown", secret)
		}
	}
}

// What is wrong with settings or secrets is named, when they are checked and at the
// start alike, and no secret is shown.
func TestRun_RefusesWrongSettings(t *testing.T) {
	shipped, err := os.ReadFile("../configs/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	encoded := base64.StdEncoding.EncodeToString(key32('k'))
	type changes []string
	for name, c := range map[string]struct {
		environment changes
		file        changes
		wants       changes
		startOnly   bool
	}{
		"wrong key":      {file: changes{"max_header_bytes: 16384", "max_headers: 16384"}, wants: changes{"gateway.yaml:", ": vendor_api.max_headers", "unknown field"}},
		"wrong type":     {file: changes{"idle_timeout: 75s", "idle_timeout: [1]"}, wants: changes{"gateway.yaml:", ": vendor_api.idle_timeout", "want a time"}},
		"wrong value":    {environment: changes{"PARTITIONS", "0"}, wants: changes{"gateway.yaml:", ": redis.partitions", "want 1 to 1024"}},
		"two at once":    {environment: changes{"LOG_LEVEL", "loud", "ENVIRONMENT", "staging"}, wants: changes{": log.level", "loud", "environment"}},
		"wrong address":  {environment: changes{"GATEWAY_ADDR", "nonsense"}, wants: changes{"gateway.yaml:", ": vendor_api.addr", "want host:port"}},
		"wrong port":     {environment: changes{"OPS_ADDR", ":99999"}, wants: changes{": private_api.addr", "0 to 65535"}},
		"one for both":   {environment: changes{"GATEWAY_ADDR", "127.0.0.1:8080", "OPS_ADDR", "127.0.0.1:8080"}, wants: changes{": private_api.addr", "the same as vendor_api.addr"}},
		"one for fleets": {environment: changes{"FLEET_API_ADDR", "127.0.0.1:8081", "OPS_ADDR", "127.0.0.1:8081"}, wants: changes{": private_api.addr", "the same as fleet_api.addr"}},
		"larger bodies of fleets": {environment: changes{"FLEET_API_ADDR", "127.0.0.1:0"}, file: changes{"max_body_bytes: 2097152", "max_body_bytes: 4194304"},
			wants: changes{"fleet_api.max_body_bytes", "want at most private_api.max_body_bytes"}},
		"wrong proxy":    {environment: changes{"PROXY_PROTOCOL_FROM", "balancer"}, wants: changes{": vendor_api.proxy_protocol_from", "balancer", "neither an address nor a network"}},
		"wrong url":      {environment: changes{"REDIS_URL", "http://u:geheim@x"}, wants: changes{"redis"}},
		"half of TLS":    {environment: changes{"TLS_CERT_FILE", "/nowhere.pem"}, wants: changes{"tls_key_file"}},
		"no certificate": {environment: changes{"TLS_CERT_FILE", "/nowhere.pem", "TLS_KEY_FILE", "/nowhere.pem"}, wants: changes{"vendor_api: certificate", "/nowhere.pem"}},
		"tracing":        {file: changes{`endpoint: ${TRACING_ENDPOINT:-}`, "endpoint: grpc://collector:4317"}, wants: changes{"tracing.endpoint"}},
		"stale at once":  {file: changes{"fleets_stale_after: 10s", "fleets_stale_after: 0s"}, wants: changes{"fleets_stale_after", "want 1s to 1h"}},
		"no token keys":  {environment: changes{"TOKEN_KEYS", ""}, wants: changes{"set TOKEN_KEYS, or TOKEN_KEYS_FILE"}},
		"two secrets":    {environment: changes{"TOKEN_KEYS", "", "WEBHOOK_KEYS", "w1:AAAA"}, wants: changes{"TOKEN_KEYS", "WEBHOOK_KEYS: key \"w1\" has 3 bytes"}},
		"two of a day":   {environment: changes{"TRACKING_KEYS", "a:" + encoded + ",b:" + encoded}, wants: changes{"same day"}},
		"no admin key":   {environment: changes{"ADMIN_KEY", ","}, wants: changes{"ADMIN_KEY"}},
		"short one":      {environment: changes{"ADMIN_KEY", adminKey + ",short"}, wants: changes{"ADMIN_KEY"}},
		"short first":    {environment: changes{"ADMIN_KEY", "short," + adminKey}, wants: changes{"ADMIN_KEY"}},
		"address taken":  {environment: changes{"GATEWAY_ADDR", taken.Addr().String()}, wants: changes{"vendor_api"}, startOnly: true},
		"private taken":  {environment: changes{"OPS_ADDR", taken.Addr().String()}, wants: changes{"private_api"}, startOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, c.environment...)
			path, text := filepath.Join(t.TempDir(), "gateway.yaml"), string(shipped)
			if len(c.file) > 0 {
				text = strings.Replace(text, c.file[0], c.file[1], 1)
				if text == string(shipped) {
					t.Fatalf("the shipped settings have no %s", c.file[0])
				}
			}

			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}

			ways := [][]string{{"-config", path}}
			if !c.startOnly {
				ways = append(ways, []string{"-config", path, "-check-config"})
			}

			for _, args := range ways {
				var out bytes.Buffer
				err := run(t.Context(), args, &out, io.Discard)
				if err == nil || out.Len() > 0 {
					t.Fatalf("%v: %v, and it wrote %q", args, err, out.String())
				}

				for _, want := range c.wants {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v: %q is missing in %v", args, want, err)
					}
				}

				if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), encoded) || strings.Contains(err.Error(), adminKey) {
					t.Errorf("%v: a secret is shown: %v", args, err)
				}
			}
		})
	}

	for _, arg := range []string{"-nonsense", "serve"} {
		if err := run(t.Context(), []string{arg}, io.Discard, io.Discard); err == nil {
			t.Errorf("%s is accepted", arg)
		}
	}
}

func TestReadSecrets_TakesSeveralAdminKeys(t *testing.T) {
	for _, value := range []string{adminKey, adminKey + ",another-key-of-16-or-more", adminKey + ","} {
		setEnvironment(t, "ADMIN_KEY", value)
		if _, err := readSecrets(); err != nil {
			t.Errorf("ADMIN_KEY=%q: %v", value, err)
		}
	}
}

func TestHelp_ListsFlagsAndSecrets(t *testing.T) {
	var out, logs bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &out, &logs); err != nil || logs.Len() > 0 {
		t.Errorf("%v, %q", err, logs.String())
	}

	for _, want := range append(secretNames, "-config", "-check-config", "-health", "-reseal", "_FILE") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in\n%s", want, out.String())
		}
	}
}

// unusedAddr is a port at an address of loopback that nothing else uses, so that
// nobody takes it before its server listens, or while that is down.
func unusedAddr(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestRun_StartsServesTellsItsHealthAndStops(t *testing.T) {
	redis := testserver.NewRedis(t)
	vendor, private := unusedAddr(t, "127.83.71.67"), unusedAddr(t, "127.83.71.68")
	setEnvironment(t, "GATEWAY_ADDR", vendor, "OPS_ADDR", private, "REDIS_URL", redis.URLFor(stack.GatewayUser))
	health := func() error {
		return run(t.Context(), []string{"-health", "-config", "../configs/gateway.yaml"}, io.Discard, io.Discard)
	}
	if health() == nil {
		t.Error("nobody listens, and the gateway is healthy")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	logs := new(logBuffer)
	go func() {
		done <- run(ctx, []string{"-config", "../configs/gateway.yaml"}, io.Discard, logs)
	}()
	testserver.Await(t, "healthy", func() bool { return health() == nil })
	if !strings.Contains(logs.String(), `level=WARN msg="this is a sandbox`) {
		t.Errorf("the gateway does not say that it is a sandbox's\n%s", logs)
	}

	e := &env{TB: t, logs: logs, client: &http.Client{Transport: &http.Transport{}}}
	want(t, e.get(fmt.Sprintf("http://%s/x", vendor), ""), 404, "NOT_FOUND")
	e.client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// A key that is left out would be 0, which is no limit in places.
func TestSettings_RefuseAFileWithoutOneOfItsKeys(t *testing.T) {
	shipped.EachKeyIsNeeded(t, "../configs/gateway.yaml", func(path string) error {
		return config.Load(path, new(settings))
	})
}
