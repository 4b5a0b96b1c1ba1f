//go:build long

package admin

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// The client against the gateway as it is shipped, with its own Redis. One sequence:
// each part leaves the system as the next one needs it.
func TestDo_RealGateway(t *testing.T) {
	t.Parallel()

	s, err := stack.Start(t.Context(), stack.Options{DataDir: t.TempDir(), BinDir: testserver.Programs(t), Courier: "manual"})
	must(t, err)
	t.Cleanup(s.Stop)
	c, err := NewClient(Settings{URL: s.Demo.OpsURL}, s.Demo.AdminKey)
	must(t, err)
	account := s.Demo.Account.AccountID

	t.Run("reads and changes", func(t *testing.T) {
		var read struct {
			Name      string
			Suspended bool
		}

		must(t, c.Do(t.Context(), "ece", http.MethodPatch, Path("accounts", account), map[string]string{"name": "Çiğköfteci <POS>"}, nil))
		must(t, c.Do(t.Context(), "ece", http.MethodGet, Path("accounts", account), nil, &read))
		if read.Name != "Çiğköfteci <POS>" || read.Suspended {
			t.Errorf("%+v", read)
		}
	})

	t.Run("names the operator in the audit log", func(t *testing.T) {
		must(t, c.Do(t.Context(), "Ayşe Yılmaz", http.MethodPost, Path("accounts", account, "credentials"), nil, nil))
		want := `msg="admin: client secret rotated" operator="Ayşe Yılmaz" account=` + account
		testserver.Await(t, "the line in the gateway's log", func() bool {
			log, err := os.ReadFile(s.Gateway.Log)
			must(t, err)
			return strings.Contains(string(log), want)
		})
	})

	t.Run("is refused", func(t *testing.T) {
		var refusal *delivery.Error
		err := c.Do(t.Context(), "ece", http.MethodPatch, Path("accounts", account),
			map[string]any{"name": "", "limits": map[string]any{"orders": map[string]any{"sustained": map[string]int{"count": 0, "seconds": 60}}}}, nil)
		if !errors.As(err, &refusal) || refusal.Code != delivery.CodeValidationFailed || refusal.Message == "" || len(refusal.Fields) != 2 {
			t.Errorf("%+v", err)
		}
		err = c.Do(t.Context(), "ece", http.MethodPost, Path("accounts", account, "stores", "..", "confirm"), nil, nil)
		if delivery.CodeOf(err) != delivery.CodeStoreNotFound {
			t.Errorf("a store called ..: %v", err)
		}
		err = c.Do(t.Context(), "ece", http.MethodPost, Path("nothing", "of", "this"), nil, nil)
		if delivery.CodeOf(err) != delivery.CodeNotFound {
			t.Errorf("an unknown path: %v", err)
		}
	})

	t.Run("with a wrong key", func(t *testing.T) {
		stranger, err := NewClient(Settings{URL: s.Demo.OpsURL}, testKey)
		must(t, err)
		if err := stranger.Do(t.Context(), "ece", http.MethodGet, "/accounts", nil, nil); !errors.Is(err, ErrWrongKey) {
			t.Error(err)
		}
	})

	t.Run("without Redis, and after", func(t *testing.T) {
		s.Redis.Stop()
		err := c.Do(t.Context(), "ece", http.MethodGet, Path("accounts", account), nil, nil)
		if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), "request id") {
			t.Error(err)
		}
		must(t, s.Redis.Start(t.Context()))
		must(t, c.Do(t.Context(), "ece", http.MethodGet, Path("accounts", account), nil, nil))
	})

	t.Run("without the gateway, and after", func(t *testing.T) {
		s.Gateway.Kill()
		if err := c.Do(t.Context(), "ece", http.MethodGet, "/accounts", nil, nil); kind(err) != "unavailable" {
			t.Error(err)
		}
		must(t, s.Gateway.Start(t.Context()))
		must(t, c.Do(t.Context(), "ece", http.MethodGet, "/accounts", nil, nil))
	})
}
