package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/config"
)

// randomKey is base64 of a key as `make env` makes them.
func randomKey() string {
	key := make([]byte, config.KeySize)
	_, _ = rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}

// production is an environment that nothing is wrong with. A test changes it.
func production() map[string]string {
	admin := make([]byte, config.KeySize)
	_, _ = rand.Read(admin)
	return map[string]string{
		"ENVIRONMENT": "production", "TRACKING_BASE_URL": "https://teslimat.vendorapi.com.tr/track", "GATEWAY_ADDR": "0.0.0.0:0", "OPS_ADDR": "0.0.0.0:0",
		"FLEET_API_ADDR": "", "FLEET_API_URL": "", "VENDOR_API_URL": "", "PRIVATE_API_URL": "", "PROXY_PROTOCOL_FROM": "172.16.0.0/12", "MAX_CONNECTIONS_PER_IP": "512",
		"TOKEN_KEYS": "k1:" + randomKey(), "TRACKING_KEYS": "k1:" + randomKey(), "WEBHOOK_KEYS": "k1:" + randomKey(), "ADMIN_KEY": hex.EncodeToString(admin),
		"REDIS_URL": "redis://gateway:9f8e7d6c5b4a@127.0.0.1:1",
	}
}

// canceled is the context of a program that ends as soon as it has started.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestMistakes_ProductionRefusesThem(t *testing.T) {
	key := randomKey()
	digest := func(key string) string { return fmt.Sprintf("ayse:sha256:%x", sha256.Sum256([]byte(key))) }
	zero := base64.StdEncoding.EncodeToString(make([]byte, config.KeySize))
	const line = "gateway.yaml:" // of the settings file, whose number follows
	for name, c := range map[string]struct {
		changes map[string]string
		wants   []string // none: it is right
	}{
		"nothing is wrong":           {nil, nil},
		"no balancer's header":       {map[string]string{"PROXY_PROTOCOL_FROM": "", "MAX_CONNECTIONS_PER_IP": "0"}, nil},
		"on loopback":                {map[string]string{"PROXY_PROTOCOL_FROM": "", "GATEWAY_ADDR": "127.0.0.1:0"}, nil},
		"URLs of all":                {map[string]string{"VENDOR_API_URL": "https://api.vendorapi.com.tr", "FLEET_API_ADDR": "0.0.0.0:0", "FLEET_API_URL": "https://fleets.vendorapi.com.tr"}, nil},
		"operators' on this machine": {map[string]string{"PRIVATE_API_URL": "http://127.0.0.1:8081"}, nil},
		"a key that is replaced":     {map[string]string{"TOKEN_KEYS": "k2:" + randomKey() + ",k1:" + randomKey()}, nil},

		"links by default":       {map[string]string{"TRACKING_BASE_URL": ""}, []string{line, ": tracking_base_url: ", "(TRACKING_BASE_URL)"}},
		"links of compose":       {map[string]string{"TRACKING_BASE_URL": "http://127.0.0.1:8091/track"}, []string{line, ": tracking_base_url: "}},
		"links in the clear":     {map[string]string{"TRACKING_BASE_URL": "http://teslimat.vendorapi.com.tr/track"}, []string{line, ": tracking_base_url: production wants https://"}},
		"links to loopback":      {map[string]string{"TRACKING_BASE_URL": "https://127.0.0.1:8491/track"}, []string{line, ": tracking_base_url: 127.0.0.1 "}},
		"links to a container":   {map[string]string{"TRACKING_BASE_URL": "https://balancer:8491/track"}, []string{line, ": tracking_base_url: "}},
		"vendors in the clear":   {map[string]string{"VENDOR_API_URL": "http://api.vendorapi.com.tr"}, []string{line, ": vendor_api.public_url: ", "(VENDOR_API_URL)"}},
		"fleets at loopback":     {map[string]string{"FLEET_API_URL": "https://localhost:8446"}, []string{line, ": fleet_api.public_url: ", "(FLEET_API_URL)"}},
		"plain HTTP":             {map[string]string{"PROXY_PROTOCOL_FROM": ""}, []string{line, ": vendor_api.proxy_protocol_from: plain HTTP"}},
		"plain HTTP for fleets":  {map[string]string{"PROXY_PROTOCOL_FROM": "", "GATEWAY_ADDR": "127.0.0.1:0", "FLEET_API_ADDR": ":0"}, []string{line, ": fleet_api.proxy_protocol_from: plain HTTP"}},
		"everybody is a proxy":   {map[string]string{"PROXY_PROTOCOL_FROM": "0.0.0.0/0"}, []string{line, ": vendor_api.proxy_protocol_from: everybody", ": private_api.proxy_protocol_from: everybody"}},
		"Redis's password":       {map[string]string{"REDIS_URL": "redis://gateway:gateway@127.0.0.1:1"}, []string{line, ": redis.url: the password "}},
		"zeros":                  {map[string]string{"TOKEN_KEYS": "k1:" + zero}, []string{`TOKEN_KEYS: key "k1" can be guessed`}},
		"zeros behind a key":     {map[string]string{"WEBHOOK_KEYS": "k2:" + randomKey() + ",k1:" + zero}, []string{`WEBHOOK_KEYS: key "k1" can be guessed`}},
		"a sentence as a key":    {map[string]string{"TRACKING_KEYS": "k1:" + base64.StdEncoding.EncodeToString([]byte("change-me-before-you-go-to-prod!"))}, []string{`TRACKING_KEYS: key "k1" can be guessed`}},
		"one key in two rings":   {map[string]string{"TOKEN_KEYS": "a:" + key, "WEBHOOK_KEYS": "b:" + key}, []string{`WEBHOOK_KEYS: key "b" is the same as that of TOKEN_KEYS: key "a"`}},
		"one key under two kids": {map[string]string{"TOKEN_KEYS": "a:" + key + ",b:" + key}, []string{`TOKEN_KEYS: key "b" is the same`}},
		"sixteen a":              {map[string]string{"ADMIN_KEY": "aaaaaaaaaaaaaaaa"}, []string{"ADMIN_KEY can be guessed"}},
		"the tests' admin key":   {map[string]string{"ADMIN_KEY": adminKey}, []string{"ADMIN_KEY can be guessed"}},
		"a second weak one":      {map[string]string{"ADMIN_KEY": key + ",1234567890123456"}, []string{"ADMIN_KEY: number 2 can be guessed"}},
		"a ring's key":           {map[string]string{"ADMIN_KEY": key, "TOKEN_KEYS": "a:" + key}, []string{"ADMIN_KEY is the same as a key of TOKEN_KEYS"}},
		"nobody's own":           {map[string]string{"ADMIN_KEY": key, "ADMIN_KEYS": digest(key)}, []string{"ADMIN_KEYS: the key of ayse is ADMIN_KEY"}},
		"several at once":        {map[string]string{"TRACKING_BASE_URL": "", "ADMIN_KEY": "aaaaaaaaaaaaaaaa"}, []string{": tracking_base_url: ", "ADMIN_KEY can be guessed"}},
	} {
		t.Run(name, func(t *testing.T) {
			environment := production()
			environment["ADMIN_KEYS"] = ""
			for variable, value := range c.changes {
				environment[variable] = value
			}

			for variable, value := range environment {
				t.Setenv(variable, value)
			}

			ofStart := run(canceled(t), []string{"-config", "../configs/gateway.yaml"}, io.Discard, io.Discard)
			var out bytes.Buffer
			ofCheck := run(t.Context(), []string{"-check-config", "-config", "../configs/gateway.yaml"}, &out, io.Discard)
			for _, err := range []error{ofStart, ofCheck} {
				if len(c.wants) == 0 && err != nil {
					t.Errorf("refused: %v", err)
				}

				for _, want := range c.wants {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%v, want %q", err, want)
					}
				}

				if err != nil && (strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "aaaa")) {
					t.Errorf("a secret is shown: %v", err)
				}
			}

			if len(c.wants) > 0 && out.Len() > 0 {
				t.Errorf("the check wrote %s", &out)
			}

			// A sandbox is for trying: it takes all of them.
			t.Setenv("ENVIRONMENT", "sandbox")
			if err := run(t.Context(), []string{"-check-config", "-config", "../configs/gateway.yaml"}, io.Discard, io.Discard); err != nil {
				t.Errorf("the sandbox refuses: %v", err)
			}
		})
	}
}

func TestCheckConfig_TakesRedisAndItsPasswordFromAFile(t *testing.T) {
	setEnvironment(t, "REDIS_URL", "")
	file := filepath.Join(t.TempDir(), "redis-url")
	if err := os.WriteFile(file, []byte("redis://gateway:geheim@10.0.0.7:6379\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("REDIS_URL_FILE", file)
	check := func() (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), []string{"-check-config", "-config", "../configs/gateway.yaml"}, &out, io.Discard)
		return out.String(), err
	}
	if out, err := check(); err != nil || !strings.Contains(out, "url: redis://gateway:xxxxx@10.0.0.7:6379") {
		t.Errorf("%v\n%s", err, out)
	}

	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	if _, err := check(); err == nil || !strings.Contains(err.Error(), ": redis.url: REDIS_URL and REDIS_URL_FILE are both set") {
		t.Errorf("both: %v", err)
	}

	t.Setenv("REDIS_URL", "")
	t.Setenv("REDIS_URL_FILE", file+".none")
	if _, err := check(); err == nil || !strings.Contains(err.Error(), ": redis.url: REDIS_URL_FILE: ") {
		t.Errorf("no such file: %v", err)
	}
}
