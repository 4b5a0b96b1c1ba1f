package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"vendorapi/internal/config"
)

func randomKey() string {
	key := make([]byte, config.KeySize)
	_, _ = rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}

func TestMistakes_ProductionRefusesThem(t *testing.T) {
	key, zero := randomKey(), base64.StdEncoding.EncodeToString(make([]byte, config.KeySize))
	const right = "redis://worker:9f8e7d6c5b4a@" + nobody
	for name, c := range map[string]struct{ redis, keys, want string }{
		"nothing is wrong":     {right, "k1:" + key, ""},
		"zeros":                {right, "k1:" + zero, `WEBHOOK_KEYS: key "k1" can be guessed`},
		"zeros behind a key":   {right, "k2:" + key + ",k1:" + zero, `WEBHOOK_KEYS: key "k1" can be guessed`},
		"one key twice":        {right, "a:" + key + ",b:" + key, `WEBHOOK_KEYS: key "b" is the same`},
		"the user's name":      {"redis://worker:worker@" + nobody, "k1:" + key, "redis.url: the password "},
		"a guessable password": {"redis://worker:changeme@" + nobody, "k1:" + key, "redis.url: the password "},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, map[string]string{"ENVIRONMENT": "production", "REDIS_URL": c.redis, "WEBHOOK_KEYS": c.keys})
			var out bytes.Buffer
			ofCheck := run(t.Context(), []string{"-config", settingsFile, "-check-config"}, &out, io.Discard)
			if c.want == "" && ofCheck != nil {
				t.Errorf("refused: %v", ofCheck)
			}

			if c.want != "" { // else the start waits for Redis
				ofStart := run(t.Context(), []string{"-config", settingsFile}, io.Discard, io.Discard)
				for _, err := range []error{ofCheck, ofStart} {
					if err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
						t.Errorf("%v, want %q; the check wrote %q", err, c.want, &out)
					}
				}
			}

			t.Setenv("ENVIRONMENT", "sandbox")
			if err := run(t.Context(), []string{"-check-config", "-config", settingsFile}, io.Discard, io.Discard); err != nil {
				t.Errorf("the sandbox refuses: %v", err)
			}
		})
	}
}
