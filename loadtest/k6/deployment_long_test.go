//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
)

// withDeployment starts a system that the test then knows only by its URL and its operator's key, and makes accounts
// in it as an operator would.
func withDeployment(t *testing.T, accounts int, use func(system *harness.System)) {
	t.Helper()
	o := stack.Options{BinDir: testserver.Programs(t), Courier: "auto", CourierStep: courierStep}
	err := harness.WithSystem(t.Context(), t.Output(), false, o, func(ctx context.Context, system *harness.System) error {
		t.Setenv("OPS_URL", system.Demo.OpsURL)
		t.Setenv("ADMIN_KEY", system.Demo.AdminKey)
		t.Setenv("BASE_URL", system.Demo.BaseURL)
		t.Setenv("ACCOUNTS", filepath.Join(t.TempDir(), "accounts.json"))

		if err := prepareAccounts(ctx, []string{"-count", fmt.Sprint(accounts)}); err != nil {
			return err
		}

		use(system)

		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// playDeployment plays one script against the deployment of the environment.
func playDeployment(t *testing.T, o *options) *results.Script {
	t.Helper()
	p := newTestPlayer(t, o)
	target, err := chooseTarget(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()

	result, _ := playOne(t, p, target)
	return result
}

func TestDeployment_HoldsWithNothingButItsURLAndAccounts(t *testing.T) {
	withDeployment(t, 2, func(*harness.System) {
		t.Setenv("OPS_URL", "")
		t.Setenv("ADMIN_KEY", "")

		result := playDeployment(t, &options{scripts: "steady", duration: 6 * time.Second})

		if !result.Passed() {
			t.Errorf("steady.js did not hold: %q", result.Failures)
		}
		if w := result.Webhooks; w.How != results.WebhooksByReceiver || w.Received == 0 || w.Received != w.Expected {
			t.Errorf("on this machine a receiver is registered by itself: %+v", w)
		}

		accounts, err := givenAccounts()
		if err != nil || len(accounts) != 2 {
			t.Fatal(accounts, err)
		}
		d, err := openDeployment(t.Context(), &options{})
		if err != nil {
			t.Fatal(err)
		}
		if taken, err := accountWithWebhook(t.Context(), d.accounts); taken != "" || err != nil {
			t.Errorf("a webhook was left behind: %s, %v", taken, err)
		}
	})
}

func TestDeployment_WebhooksOfOthersAreSeenByTheirAttempts(t *testing.T) {
	withDeployment(t, 1, func(system *harness.System) {
		system.Hooks.HandleFunc("/elsewhere", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		d, err := openDeployment(t.Context(), &options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.accounts[0].call(t.Context(), http.MethodPut, "/webhook", map[string]string{"url": system.HooksURL + "/elsewhere"}); err != nil {
			t.Fatal(err)
		}

		result := playDeployment(t, &options{scripts: "steady", duration: 5 * time.Second})

		if !result.Passed() {
			t.Errorf("steady.js did not hold: %q", result.Failures)
		}
		if w := result.Webhooks; w.How != results.WebhooksByAttempts || w.Orders < 40 || w.Received != w.Expected {
			t.Errorf("%+v", w)
		}
	})
}

func TestAccounts_LimitsAreRaisedAndGivenBack(t *testing.T) {
	withDeployment(t, 2, func(system *harness.System) {
		limitsNow := func() *limits {
			file, err := readAccountsFile(os.Getenv("ACCOUNTS"))
			if err != nil {
				t.Fatal(err)
			}

			var account struct{ Limits limits }
			if err := system.Admin.Call(t.Context(), http.MethodGet, "/accounts/"+file.accounts[1].AccountID, nil, &account); err != nil {
				t.Fatal(err)
			}
			return &account.Limits
		}

		before := limitsNow()

		if err := prepareAccounts(t.Context(), []string{"-orders", "500"}); err != nil {
			t.Fatal(err)
		}
		if now := limitsNow(); now.burstOrders() != 500 || now.Orders.Sustained.Count != 3000 || now.Cancel.Sustained.Count != 3000 {
			t.Errorf("raised to %+v", now)
		}
		if err := prepareAccounts(t.Context(), []string{"-orders", "900"}); err != nil { // once more, and the first ones come back
			t.Fatal(err)
		}
		if err := prepareAccounts(t.Context(), []string{"-restore"}); err != nil {
			t.Fatal(err)
		}

		was, is := jsonOf(t, before), jsonOf(t, limitsNow())
		if was != is {
			t.Errorf("the limits were %s and are %s", was, is)
		}

		text, err := os.ReadFile(os.Getenv("ACCOUNTS"))
		if err != nil {
			t.Fatal(err)
		}
		if err := prepareAccounts(t.Context(), []string{"-suspend"}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(os.Getenv("ACCOUNTS")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file without accounts is still there: %v", err)
		}

		t.Setenv("ACCOUNTS", string(text))
		if _, err := openDeployment(t.Context(), &options{}); err == nil {
			t.Error("a suspended account could log in")
		}
	})
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mutant is a proxy that makes a defect of the service.
type mutant struct {
	*httptest.Server
	count atomic.Int64
}

// newMutant hands every request on, unless before has answered it, and may change answers.
func newMutant(t *testing.T, target string, before func(*mutant, http.ResponseWriter, *http.Request) (answered bool), change func(*mutant, *http.Response) error) *mutant {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}

	m := &mutant{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	if change != nil {
		proxy.ModifyResponse = func(r *http.Response) error { return change(m, r) }
	}

	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil && before(m, w, r) {
			return
		}
		proxy.ServeHTTP(w, r)
	}))

	t.Cleanup(m.Close)

	return m
}

// createsOrder reports whether a request creates an order.
func createsOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/orders")
}

// assertNamed checks that a script failed, and for the reason that is named.
func assertNamed(t *testing.T, result *results.Script, reason string) {
	t.Helper()
	failures := strings.Join(result.Failures, "\n")
	if !strings.Contains(failures, reason) {
		t.Errorf("the failures do not name %q:\n%s", reason, failures)
	}
}

// A defect that a load test must not miss is named by it, each with the rest of the service as it is.
func TestMutants_AreNamed(t *testing.T) {
	settled := settleTime
	settleTime = 12 * time.Second
	t.Cleanup(func() { settleTime = settled })
	steady := func() *options { return &options{scripts: "steady", duration: 5 * time.Second} }

	withDeployment(t, 2, func(system *harness.System) {
		t.Run("a service that answers nothing", func(t *testing.T) {
			silent := newMutant(t, system.Demo.BaseURL, func(m *mutant, w http.ResponseWriter, r *http.Request) bool {
				isSilent := createsOrder(r) && m.count.Add(1) > 20
				if isSilent {
					cut(t, w)
				}
				return isSilent
			}, nil)

			t.Setenv("BASE_URL", silent.URL)

			result := playDeployment(t, steady())

			assertNamed(t, result, "every request is answered")
		})

		t.Run("a service that answers slowly", func(t *testing.T) {
			slow := newMutant(t, system.Demo.BaseURL, func(_ *mutant, _ http.ResponseWriter, r *http.Request) bool {
				if createsOrder(r) {
					time.Sleep(150 * time.Millisecond) // the defect, not a wait of the test
				}
				return false
			}, nil)

			t.Setenv("BASE_URL", slow.URL)

			result := playDeployment(t, steady())

			assertNamed(t, result, "POST /orders takes less than 50 ms in 95 of 100 cases")
		})

		t.Run("a lost webhook", func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0") // a free port for the receiver
			if err != nil {
				t.Fatal(err)
			}

			addr := listener.Addr().String()
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}

			thief := newMutant(t, "http://"+addr, func(m *mutant, w http.ResponseWriter, r *http.Request) bool {
				isStolen := r.Header.Get("X-Service-Event") == "delivery.status_changed" && m.count.Add(1) == 30
				if isStolen {
					w.WriteHeader(http.StatusNoContent)
				}
				return isStolen
			}, nil)

			o := steady()
			o.receiver = receiverOptions{url: thief.URL, addr: addr}

			result := playDeployment(t, o)

			assertNamed(t, result, "the webhooks say")
		})

		t.Run("a misspelt level", func(t *testing.T) {
			o := steady()
			o.scripts, o.own = "", textList{filepath.Join("testdata", "misspelt.js")}

			result := playDeployment(t, o)

			assertNamed(t, result, "NOT MEASURED")
		})
	})
}

// One order too many in a window is found by the script itself, which knows the limits, and by the count of all.
func TestMutants_OneOrderTooManyIsNamed(t *testing.T) {
	settled := settleTime
	settleTime = 12 * time.Second
	t.Cleanup(func() { settleTime = settled })

	withDeployment(t, 2, func(system *harness.System) {
		var last atomic.Pointer[acceptance]
		generous := newMutant(t, system.Demo.BaseURL, nil, func(m *mutant, r *http.Response) error {
			if !createsOrder(r.Request) {
				return nil
			}

			switch r.StatusCode {
			case http.StatusCreated:
				return remember(&last, r)
			case http.StatusTooManyRequests:
				if m.count.Add(1) == 3 { // the first two are the vendors' look at their limits
					forge(r, last.Load())
				}
			}

			return nil
		})

		t.Setenv("BASE_URL", generous.URL)
		t.Setenv("FRESH", "yes")

		result := playDeployment(t, &options{scripts: "burst", duration: 1})

		assertNamed(t, result, "nothing beyond the limits is accepted")
		assertNamed(t, result, "limit not exact: POST /orders")
	})
}

func cut(t *testing.T, w http.ResponseWriter) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_ = connection.Close() // that is what is wanted
}

// acceptance is how an order was accepted.
type acceptance struct {
	header http.Header
	body   []byte
}

// remember keeps an answer and hands it on.
func remember(last *atomic.Pointer[acceptance], r *http.Response) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	last.Store(&acceptance{header: r.Header.Clone(), body: body})
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// forge makes an acceptance of a refusal.
func forge(refusal *http.Response, by *acceptance) {
	refusal.StatusCode, refusal.Status = http.StatusCreated, "201 Created"
	refusal.Header = by.header.Clone()
	refusal.Header.Set("Content-Length", fmt.Sprint(len(by.body)))
	refusal.ContentLength = int64(len(by.body))
	refusal.Body = io.NopCloser(bytes.NewReader(by.body))
}

func TestDeployment_ThatReachesNoReceiverIsStillTested(t *testing.T) {
	withDeployment(t, 1, func(system *harness.System) {
		deaf := newMutant(t, system.Demo.BaseURL, func(_ *mutant, w http.ResponseWriter, r *http.Request) bool {
			isTest := strings.HasSuffix(r.URL.Path, "/webhook/test")
			if isTest { // as if the event went into a network that does not lead here
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"success": true, "data": {}}`)
			}
			return isTest
		}, nil)

		t.Setenv("BASE_URL", deaf.URL)

		result := playDeployment(t, &options{scripts: "steady", duration: 4 * time.Second})

		if !result.Passed() {
			t.Errorf("steady.js did not hold: %q", result.Failures)
		}
		if w := result.Webhooks; w.How != results.WebhooksNotChecked || !strings.Contains(w.Why, "no webhook arrives") {
			t.Errorf("%+v", w)
		}
	})
}
