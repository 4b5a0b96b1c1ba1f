//go:build long

package systemtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
)

// replica is a gateway behind a balancer, which takes it out before it is stopped.
type replica struct {
	sync.RWMutex // held for reading by requests, for writing while it is replaced
	program      *stack.Program
	vendor       string
}

// keyring is a system of two gateways and a worker, the files that their keys come
// from, and what its users hold at the moment.
type keyring struct {
	*stackEnv
	keys     string // folder
	replicas []*replica
	turn     atomic.Int64

	mu                   sync.Mutex
	adminKey             string
	vendorBearer, fleetB string
}

// request sends one request to whichever gateway is in; anything but a success is
// an error.
func (k *keyring) request(ctx context.Context, c *client.Client, origin func(*replica) string, bearer *string, method, path string, body any, headers ...string) (*client.Answer, error) {
	for {
		r := k.replicas[int(k.turn.Add(1))%len(k.replicas)]
		if !r.TryRLock() {
			continue
		}

		k.mu.Lock()
		as := c.As(origin(r), *bearer)
		k.mu.Unlock()
		a, err := as.Do(ctx, method, path, body, headers...)
		r.RUnlock()
		if err == nil {
			err = a.Err()
		}

		return a, err
	}
}

func vendorOrigin(r *replica) string { return r.vendor + "/api/vendor/v1" }
func adminOrigin(r *replica) string  { return r.program.OpsURL() + "/api/admin/v1" }
func fleetOrigin(r *replica) string  { return r.program.OpsURL() + "/api/fleet/v1" }

// replace restarts the gateways one after the other, and the worker.
func (k *keyring) replace(t *testing.T) {
	t.Helper()
	for _, r := range k.replicas {
		r.Lock()
		r.program.Stop()
		err := r.program.Start(t.Context())
		r.Unlock()
		must(t, err)
	}

	k.Worker.Stop()
	must(t, k.Worker.Start(t.Context()))
}

func (k *keyring) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(k.keys, name))
	must(t, err)
	return strings.TrimSpace(string(content))
}

func (k *keyring) write(t *testing.T, name, value string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(k.keys, name), []byte(value+"\n"), 0o600))
}

// logIn gets new tokens, as everybody does within an hour.
func (k *keyring) logIn(t *testing.T, v account) {
	t.Helper()
	e := newStackEnv(t, k.Stack)
	fresh := e.Login(t, stack.DemoAccount{AccountID: v.AccountID, ClientID: v.ClientID, ClientSecret: v.ClientSecret})
	k.mu.Lock()
	k.vendorBearer, k.fleetB = fresh.Bearer, e.Fleet.Bearer
	k.mu.Unlock()
}

// Every key is replaced while requests come in without a pause: the new one is
// known everywhere before anybody uses it, and the old one goes after its last use.
// No request fails, creations are replayed byte for byte, webhooks verify.
func TestRotation_OfEveryKeyFailsNoRequest(t *testing.T) {
	t.Parallel()

	data := t.TempDir()
	s := startStack(t, stack.Options{DataDir: data, CourierStep: 100 * time.Millisecond})
	gateway, second, err := s.AddGateway(t.Context())
	must(t, err)
	k := &keyring{stackEnv: s, keys: filepath.Join(data, "keys"), adminKey: s.Demo.AdminKey,
		replicas: []*replica{{program: s.Gateway, vendor: s.Demo.BaseURL}, {program: gateway, vendor: second}}}
	v := s.Account(t, stack.Unlimited)
	received := v.Receive(t, receiver.Options{})
	v.AwaitStore(t, s)
	k.logIn(t, v)
	old := &acknowledged{key: "before", body: v.Order(nil)}
	a, err := v.Do(t.Context(), http.MethodPost, "/orders", old.body, "X-Idempotency-Key", old.key)
	must(t, err)
	old.read(t, a)

	load := k.startLoad(t, v, old)
	oldAdmin := k.replaceKeys(t, v)
	k.rotateCredentials(t, v)
	v.Client = v.As(v.Base, k.vendorBearer)
	last := v.Create(t, nil)
	await(t, "webhooks of the last order arrive", func() bool { return len(received.Timeline(last)) == 5 })
	if n := load(); n < 100 {
		t.Errorf("only %d requests were sent meanwhile", n)
	}
	if counts := received.Counts(); len(counts.Invalid) > 0 {
		t.Errorf("webhooks that do not verify: %+v", counts.Invalid)
	}

	a, err = client.New("", 1).As(adminOrigin(k.replicas[1]), oldAdmin).Do(t.Context(), http.MethodGet, "/accounts", nil)
	if err != nil || a.Status != http.StatusUnauthorized {
		t.Errorf("the old admin key is answered %+v, %v", a, err)
	}
}

// replaceKeys takes every file of keys through the three steps, and returns the
// admin key that is good no more.
func (k *keyring) replaceKeys(t *testing.T, v account) (oldAdmin string) {
	t.Helper()
	files := []string{"token-keys", "webhook-keys", "admin-key"}
	before, after := map[string]string{}, map[string]string{}
	for _, name := range files {
		before[name], after[name] = k.read(t, name), "k2:"+freshKey()
	}

	after["admin-key"] = strings.ReplaceAll(freshKey(), "=", "")
	// A tracking key signs from its day on; nothing else has to be thought of.
	tracking := k.read(t, "tracking-keys")
	k.write(t, "tracking-keys", tracking+",t2-"+time.Now().UTC().AddDate(0, 0, 2).Format("20060102")+":"+freshKey())

	for _, name := range files { // 1: everybody knows the new ones
		k.write(t, name, before[name]+","+after[name])
	}

	k.replace(t)
	for _, name := range files { // 2: everybody uses the new ones
		k.write(t, name, after[name]+","+before[name])
	}

	k.replace(t)
	k.mu.Lock()
	k.adminKey = after["admin-key"]
	k.mu.Unlock()
	k.Demo.AdminKey = after["admin-key"]
	k.logIn(t, v)
	k.reseal(t)
	for _, name := range files { // 3: the old ones are gone
		k.write(t, name, after[name])
	}

	k.replace(t)

	return before["admin-key"]
}

func freshKey() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return base64.StdEncoding.EncodeToString(key[:])
}

// startLoad sends requests of every kind until the returned function is called,
// which returns how many there were. Each that fails is an error of the test.
func (k *keyring) startLoad(t *testing.T, v account, old *acknowledged) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var sent atomic.Int64
	repeat := func(name string, send func(c *client.Client) error) {
		all.Go(func() {
			for c := client.New("", 4); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if err := send(c); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				sent.Add(1)
			}
		})
	}

	repeat("an order", func(c *client.Client) error {
		_, err := k.request(ctx, c, vendorOrigin, &k.vendorBearer, http.MethodPost, "/orders", v.Order(nil))
		return err
	})

	repeat("a repeated order", func(c *client.Client) error {
		a, err := k.request(ctx, c, vendorOrigin, &k.vendorBearer, http.MethodPost, "/orders", old.body, "X-Idempotency-Key", old.key)
		if err == nil && !bytes.Equal(a.Raw, old.answer) {
			err = fmt.Errorf("answered %s, was %s", a.Raw, old.answer)
		}
		return err
	})

	repeat("an operator", func(c *client.Client) error {
		_, err := k.request(ctx, c, adminOrigin, &k.adminKey, http.MethodGet, "/accounts/"+v.AccountID, nil)
		return err
	})

	repeat("a fleet", func(c *client.Client) error {
		_, err := k.request(ctx, c, fleetOrigin, &k.fleetB, http.MethodGet, "/jobs?status=Searching", nil)
		return err
	})

	t.Cleanup(func() { cancel(); all.Wait() })

	return func() int64 { cancel(); all.Wait(); return sent.Load() }
}

// reseal is `gateway -reseal` with the keys as they are.
func (k *keyring) reseal(t *testing.T) {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "gateway"), "-reseal", "-config", filepath.Join(root, "configs", "gateway.yaml"))
	cmd.Env = append(os.Environ(), "REDIS_URL="+k.RedisURL(stack.GatewayUser), "ENVIRONMENT=sandbox",
		"TOKEN_KEYS_FILE="+filepath.Join(k.keys, "token-keys"), "TRACKING_KEYS_FILE="+filepath.Join(k.keys, "tracking-keys"),
		"WEBHOOK_KEYS_FILE="+filepath.Join(k.keys, "webhook-keys"), "ADMIN_KEY_FILE="+filepath.Join(k.keys, "admin-key"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "sealed_again=") {
		t.Fatalf("gateway -reseal: %v\n%s", err, out)
	}
}

// rotateCredentials rotates the vendor's and the fleet's client secrets: right
// after it, the old and the new one are good at every gateway.
func (k *keyring) rotateCredentials(t *testing.T, v account) {
	t.Helper()
	c := client.New("", 4)
	for _, of := range []struct {
		path, id, secret string
		origin           func(*replica) string
	}{
		{"/accounts/" + v.AccountID, v.ClientID, v.ClientSecret, vendorOrigin},
		{"/fleets/" + k.Demo.Fleet.FleetID, k.Demo.Fleet.ClientID, k.Demo.Fleet.ClientSecret, fleetOrigin},
	} {
		var fresh struct{ ClientSecret string }
		must(t, c.As(adminOrigin(k.replicas[0]), k.adminKey).Call(t.Context(), http.MethodPost, of.path+"/credentials", nil, &fresh))
		for _, r := range k.replicas {
			for name, secret := range map[string]string{"old": of.secret, "new": fresh.ClientSecret} {
				if _, err := c.As(of.origin(r), "").Login(t.Context(), "/token", of.id, secret); err != nil {
					t.Errorf("%s: the %s secret: %v", of.path, name, err)
				}
			}
		}
	}
}
