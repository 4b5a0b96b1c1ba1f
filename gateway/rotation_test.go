package main

import (
	"crypto/tls"
	"log/slog"
	"os"
	"testing"
	"time"
)

func TestAdminFleets_RotatedSecretsOverlap(t *testing.T) {
	s := newScene(t, "")
	path := "/fleets/" + s.courier.id + "/credentials"
	rotated := s.admin("POST", path, "")
	until, err := time.Parse(time.RFC3339, rotated.data["previousValidUntil"].(string))
	if err != nil || time.Until(until) < 23*time.Hour || time.Until(until) > 25*time.Hour {
		t.Errorf("previousValidUntil = %v, %v", until, err)
	}
	if rotated.data["clientId"] != s.courier.clientID {
		t.Errorf("clientId = %v", rotated.data["clientId"])
	}
	second := rotated.data["clientSecret"].(string)
	for name, secret := range map[string]string{"old": s.courier.secret, "new": second} {
		if a := s.login("fleet", s.courier.clientID, secret); a.status != 200 {
			t.Errorf("the %s secret: %d %s", name, a.status, a.body)
		}
	}
	s.admin("POST", path, "")
	if a := s.login("fleet", s.courier.clientID, s.courier.secret); a.status != 401 {
		t.Errorf("the secret before the last: %d", a.status)
	}
	if a := s.send(request{method: "POST", url: s.private + "/api/admin/v1/fleets/00000000-0000-8000-8000-000000000000/credentials", token: adminKey}); a.status != 404 {
		t.Errorf("a fleet that is not there: %d %s", a.status, a.body)
	}
}

// While the admin key is rotated each of several opens, and nothing else does.
func TestAdmin_TakesEachOfSeveralKeys(t *testing.T) {
	s, keys := testSettings(t), testSecrets()
	s.Redis.URL = startRedis(t).URL
	keys.AdminKey = "the-new-key-of-operators, " + adminKey + ","
	w := startGateway(t, s, keys)
	w.awaitReady()
	for key, want := range map[string]int{
		"the-new-key-of-operators": 200, adminKey: 200, "": 401, ",": 401, " " + adminKey: 200, // blanks belong to the header
		"the-new-key-of-operators, " + adminKey: 401, adminKey + ",": 401,
	} {
		if a := w.send(request{method: "GET", url: w.private + "/api/admin/v1/accounts", token: key}); a.status != want {
			t.Errorf("%q: %d, want %d", key, a.status, want)
		}
	}
}

func TestReadSecrets_JudgesEveryAdminKey(t *testing.T) {
	key := "k1:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	for _, name := range []string{"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS"} {
		t.Setenv(name, key)
	}
	for value, good := range map[string]bool{
		adminKey: true, adminKey + "," + "another-key-of-16-or-more": true, adminKey + ",": true,
		"short": false, adminKey + ",short": false, "short," + adminKey: false, ",": false,
	} {
		t.Setenv("ADMIN_KEY", value)
		if _, err := readSecrets(); (err == nil) != good {
			t.Errorf("ADMIN_KEY=%q: %v", value, err)
		}
	}
}

// A certificate whose files are replaced is served without a restart; while the two
// do not belong together, or are not readable, the one before is.
func TestCertificate_IsReadAgainWhenItsFilesChange(t *testing.T) {
	certFile, keyFile := certificate(t)
	c, err := openCertificate(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.every = 0
	served := func() *tls.Certificate {
		t.Helper()
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := served()
	if served() != first {
		t.Error("it was read again though nothing has changed")
	}
	freshCert, freshKey := certificate(t)
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Minute) // whatever the file system's clock can tell apart
		if err := os.Chtimes(to, later, later); err != nil {
			t.Fatal(err)
		}
	}
	move(freshCert, certFile)
	if served() != first {
		t.Error("a certificate was served with another one's key")
	}
	move(freshKey, keyFile)
	second := served()
	if second == first {
		t.Error("the new certificate is not served")
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	if served() != second {
		t.Error("without its file the certificate is gone")
	}
	if _, err := openCertificate(certFile, keyFile, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a gateway starts without its certificate")
	}
}
