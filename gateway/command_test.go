package main

import (
	"bytes"
	"encoding/base64"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rightEnvironment is what the shipped settings need of the environment.
func rightEnvironment(t *testing.T) {
	t.Helper()
	encoded := base64.StdEncoding.EncodeToString(key32('k'))
	for variable, value := range map[string]string{
		"GATEWAY_ADDR": "127.0.0.1:0", "OPS_ADDR": "127.0.0.1:0", "ADMIN_KEY": adminKey,
		"REDIS_URL": "rediss://gateway:geheim@127.0.0.1:1", "TLS_CERT_FILE": "", "TLS_KEY_FILE": "",
		"TOKEN_KEYS": "t1:" + encoded, "TRACKING_KEYS": "k1:" + encoded, "WEBHOOK_KEYS": "w1:" + encoded, "LOG_LEVEL": "",
	} {
		t.Setenv(variable, value)
	}
}

// Nothing listens at the address of Redis: neither is it asked.
func TestCheckConfig_SaysWhatIsInForce(t *testing.T) {
	rightEnvironment(t)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--check-config", "--config", "../configs/gateway.yaml"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# ../configs/gateway.yaml: ok\n", "max_in_flight: 512", "read_timeout: 10s", "rediss://gateway:xxxxx@127.0.0.1:1", "TOKEN_KEYS     from the environment"} {
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

func TestCheckConfig_NamesFileLineAndKey(t *testing.T) {
	shipped, err := os.ReadFile("../configs/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, replacement   string
		variable, value    string
		key, further, also string
	}{
		"wrong key":      {old: "max_header_bytes: 16384", replacement: "max_headers: 16384", key: "vendor_api.max_headers", further: "unknown field"},
		"wrong type":     {old: "idle_timeout: 75s", replacement: "idle_timeout: [1]", key: "vendor_api.idle_timeout", further: "want a time"},
		"wrong value":    {variable: "PARTITIONS", value: "0", key: "redis.partitions", further: "want 1 to 1024"},
		"two at once":    {variable: "LOG_LEVEL", value: "loud", key: "log.level", further: "loud", also: "environment"},
		"wrong address":  {variable: "GATEWAY_ADDR", value: "nonsense", key: "vendor_api.addr", further: "want host:port"},
		"wrong port":     {variable: "OPS_ADDR", value: ":99999", key: "private_api.addr", further: "0 to 65535"},
		"one for both":   {old: "${GATEWAY_ADDR:-127.0.0.1:8080}", replacement: "127.0.0.1:8080", variable: "OPS_ADDR", value: "127.0.0.1:8080", key: "private_api.addr", further: "the same as vendor_api.addr"},
		"wrong url":      {variable: "REDIS_URL", value: "http://u:geheim@x", key: "redis url"},
		"no certificate": {variable: "TLS_CERT_FILE", value: "/nowhere.pem", key: "vendor_api: certificate", further: "/nowhere.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			rightEnvironment(t)
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			if c.variable == "TLS_CERT_FILE" {
				t.Setenv("TLS_KEY_FILE", c.value)
			}
			text := strings.Replace(string(shipped), c.old, c.replacement, 1)
			if c.also != "" {
				t.Setenv("ENVIRONMENT", "staging")
			}
			path := filepath.Join(t.TempDir(), "gateway.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := run(t.Context(), []string{"-check-config", "-config", path}, &out, io.Discard)
			if err == nil || out.Len() > 0 {
				t.Fatalf("%v, and it wrote %q", err, out.String())
			}
			for _, want := range []string{path + ":", ": " + c.key, c.further, c.also} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "geheim") {
				t.Errorf("a password is shown: %v", err)
			}
		})
	}
}

func TestCheckConfig_NamesEveryMissingSecret(t *testing.T) {
	rightEnvironment(t)
	t.Setenv("TOKEN_KEYS", "")
	t.Setenv("WEBHOOK_KEYS", "w1:AAAA")
	err := run(t.Context(), []string{"-check-config", "-config", "../configs/gateway.yaml"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "set TOKEN_KEYS, or TOKEN_KEYS_FILE") || !strings.Contains(err.Error(), "WEBHOOK_KEYS: key \"w1\" has 3 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestHelp_ListsFlagsAndSecrets(t *testing.T) {
	for _, flag := range []string{"--help", "-h"} {
		var out, logs bytes.Buffer
		if err := run(t.Context(), []string{flag}, &out, &logs); err != nil || logs.Len() > 0 {
			t.Errorf("%s: %v, %q", flag, err, logs.String())
		}
		for _, want := range append(secretNames, "-config", "-check-config", "-health", "-reseal", "_FILE") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s is missing in\n%s", want, out.String())
			}
		}
	}
	if err := run(t.Context(), []string{"serve"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), `"serve" is no flag`) {
		t.Errorf("a stray word: %v", err)
	}
}

func TestHealth_IsReadyzOfTheOneThatRuns(t *testing.T) {
	rightEnvironment(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OPS_ADDR", l.Addr().String())
	l.Close()
	if err := run(t.Context(), []string{"-health", "-config", "../configs/gateway.yaml"}, io.Discard, io.Discard); err == nil {
		t.Error("nobody listens, and the gateway is healthy")
	}
	w := newWorld(t)
	t.Setenv("OPS_ADDR", strings.TrimPrefix(w.private, "http://"))
	if err := run(t.Context(), []string{"-health", "-config", "../configs/gateway.yaml"}, io.Discard, io.Discard); err != nil {
		t.Errorf("a gateway that is ready: %v", err)
	}
}
