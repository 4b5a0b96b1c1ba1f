package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// courierStep makes a delivery last some seconds, so that every order ends
// within its script's run or soon after.
const courierStep = 500 * time.Millisecond

// house is the whole system with a receiver for every account's webhooks. Every
// script has one of its own, so that none finds what another has left.
type house struct {
	*stack.Stack
	admin  *client.Client
	vendor *client.Client // without a token
	hooks  *http.ServeMux
	base   string // of the receivers' URLs
	dir    string // everything that the system keeps
	server *http.Server
}

// account is a vendor that a script plays, and its receiver.
type account struct {
	Label        string `json:"-"` // as in the script: its place, from 1
	AccountID    string `json:"-"`
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
	receiver     *receiver.Receiver
}

// openHouse starts the programs of the folder bin on free ports, with their data
// in a folder of its own that close removes. courier is "auto" or "manual"; with
// the latter the fleet does nothing but confirm stores. out is shown what the
// programs complain of.
func openHouse(ctx context.Context, bin, courier string, out io.Writer) (h *house, err error) {
	h = &house{hooks: http.NewServeMux()}
	if h.dir, err = os.MkdirTemp("", "vendor-load-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.close(false)
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receivers: %w", err)
	}
	h.base = "http://" + listener.Addr().String()
	h.server = &http.Server{Handler: h.hooks, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.server.Serve(listener) }() // ends with close
	h.Stack, err = stack.Start(ctx, stack.Options{
		DataDir: h.dir, BinDir: bin, Courier: courier, CourierStep: courierStep, Out: complaints{out},
	})
	if err != nil {
		return nil, err
	}
	h.admin = client.New("", 4).As(h.Demo.OpsURL+"/api/admin/v1", h.Demo.AdminKey)
	h.vendor = client.New(h.Demo.BaseURL+"/api/vendor/v1", readers)
	return h, nil
}

// complaints lets through what a program says of errors, and not how the stack
// is coming up.
type complaints struct{ out io.Writer }

func (c complaints) Write(b []byte) (int, error) {
	name, _, found := strings.Cut(string(b), ": ")
	if found && slices.Contains([]string{"gateway", "worker", "redis-server"}, name) {
		return c.out.Write(b)
	}
	return len(b), nil
}

// confirmStores is all that the fleet does where no courier is played: it says
// yes to every store that asks for it, until ctx ends.
func (h *house) confirmStores(ctx context.Context) error {
	base := h.Demo.OpsURL + "/api/fleet/v1"
	fleet, err := h.admin.As(base, "").Login(ctx, "/token", h.Demo.Fleet.ClientID, h.Demo.Fleet.ClientSecret)
	if err != nil {
		return fmt.Errorf("sign the fleet in: %w", err)
	}
	tick := time.NewTicker(courierStep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var pending struct {
			Stores []struct{ AccountID, ExternalStoreID string }
		}
		if err := fleet.Call(ctx, http.MethodGet, "/stores?status=AwaitingFleetApproval", nil, &pending); err != nil {
			return fmt.Errorf("confirm stores: %w", err)
		}
		for _, s := range pending.Stores {
			path := "/stores/" + s.AccountID + "/" + url.PathEscape(s.ExternalStoreID) + "/confirm"
			if err := fleet.Call(ctx, http.MethodPost, path, nil, nil); err != nil {
				return fmt.Errorf("confirm stores: %w", err)
			}
		}
	}
}

// close stops everything; keep leaves the data and the programs' logs.
func (h *house) close(keep bool) {
	if h.Stack != nil {
		h.Stop()
	}
	if h.server != nil {
		_ = h.server.Close()
	}
	if !keep {
		_ = os.RemoveAll(h.dir) // a folder of the system's for temporary ones
	}
}

// admit creates the accounts that a script needs, each with a receiver that
// knows its secret.
func (h *house) admit(ctx context.Context, s *script) ([]*account, error) {
	var accounts []*account
	for n := range s.accounts {
		a := &account{Label: strconv.Itoa(n + 1)}
		form := map[string]any{"name": fmt.Sprintf("Yük Testi %s %d", s.name, n+1)}
		if limits := s.limits(); limits != nil {
			form["limits"] = limits
		}
		var made struct{ AccountID, ClientID, ClientSecret string }
		if err := h.admin.Call(ctx, http.MethodPost, "/accounts", form, &made); err != nil {
			return nil, fmt.Errorf("create an account: %w", err)
		}
		a.AccountID, a.ClientID, a.ClientSecret = made.AccountID, made.ClientID, made.ClientSecret
		if err := h.listen(ctx, s, a); err != nil {
			return nil, fmt.Errorf("register a webhook: %w", err)
		}
		accounts = append(accounts, a)
	}
	return accounts, nil
}

func (h *house) listen(ctx context.Context, s *script, a *account) error {
	path := "/" + s.name + "/" + a.Label
	var hook struct{ Secret string }
	err := h.admin.Call(ctx, http.MethodPut, "/accounts/"+a.AccountID+"/webhook", map[string]string{"url": h.base + path}, &hook)
	if err != nil {
		return err
	}
	if a.receiver, err = receiver.New(receiver.Options{Secrets: []string{hook.Secret}}); err != nil {
		return err
	}
	h.hooks.Handle(path, a.receiver)
	return nil
}

// environment is what a script is told: lib/vendor.js reads it. Secrets go by
// this way and not on the command line, which everybody on the machine can read.
func (h *house) environment(accounts []*account) ([]string, error) {
	list, err := json.Marshal(accounts)
	if err != nil {
		return nil, err
	}
	return []string{"BASE_URL=" + h.Demo.BaseURL, "FLEET_ID=" + h.Demo.Fleet.FleetID, "ACCOUNTS=" + string(list)}, nil
}
