package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"vendorapi/internal/stack/client"
)

// accountsFile is the file that the command "accounts" keeps.
type accountsFile struct {
	path     string
	accounts []accountRecord

	created, raised, restored, suspended int // accounts, by what was done
}

// readAccountsFile reads the file. A file that does not exist has no accounts.
func readAccountsFile(path string) (*accountsFile, error) {
	f := &accountsFile{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}

	if err != nil {
		return nil, err
	}

	f.accounts, err = readAccounts(text)

	return f, err
}

// write replaces the file as a whole. It holds secrets, so only its owner may read it.
func (f *accountsFile) write() error {
	text, err := json.MarshalIndent(f.accounts, "", "  ")
	if err != nil {
		return err
	}

	unfinished := f.path + ".unfinished"
	if err := os.WriteFile(unfinished, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, f.path)
}

// prepareAccounts is the command "accounts", `go run ./loadtest/k6 accounts`.
func prepareAccounts(ctx context.Context, args []string) error {
	flags := newFlags("accounts", "", `makes accounts for load tests, raises the limits of all that the file has, and gives their limits back.
It needs OPS_URL and ADMIN_KEY; make run writes them to .data/demo.env`)
	path := flags.String("file", "", "the `file` of accounts, empty: ACCOUNTS; it is made if it does not exist, and holds secrets")
	count := flags.Int("count", 0, "how many accounts the file has to have; what is missing is created")
	orders := flags.Int("orders", 0, "raise the limits of each so that it may send so many orders in 10 s")
	restore := flags.Bool("restore", false, "give each account the limits back that it had before")
	suspend := flags.Bool("suspend", false, "suspend each account, so that its credentials are of no use any more")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := refuseArguments(flags); err != nil {
		return err
	}

	if *path == "" {
		*path = os.Getenv("ACCOUNTS")
	}

	if *path == "" || isJSON(*path) {
		return errors.New("name the file of accounts: -file FILE (go run ./loadtest/k6 accounts -file FILE)")
	}

	wanted := accountChanges{count: *count, orders: *orders, restore: *restore, suspend: *suspend}
	if err := wanted.validate(); err != nil {
		return err
	}

	admin, err := adminOf(os.Getenv("OPS_URL"), os.Getenv("ADMIN_KEY"))
	if err != nil {
		return err
	}
	file, err := readAccountsFile(*path)
	if err != nil {
		return err
	}

	isEmpty := len(file.accounts) == 0 && wanted.count == 0
	if isEmpty {
		return fmt.Errorf("there is no file %s: -count (COUNT=…) creates accounts", absolutePath(*path))
	}

	err = file.apply(ctx, admin, wanted)
	fmt.Printf("accounts: %d created, %d raised, %d given their limits back, %d suspended; %d are in %s\n",
		file.created, file.raised, file.restored, file.suspended, len(file.accounts), absolutePath(*path))

	return err
}

// accountChanges is what the command "accounts" has to do.
type accountChanges struct {
	count   int // how many accounts the file has to have at least; 0: as many as it has
	orders  int // how many orders each account may send in 10 s; 0: its limits are not raised
	restore bool
	suspend bool
}

// validate returns an error for changes that are out of range, contradict each other or are none.
func (c accountChanges) validate() error {
	isNothing := c.count == 0 && c.orders == 0 && !c.restore && !c.suspend
	fewestOrders := contractLimits().burstOrders()
	isLowered := c.orders != 0 && c.orders < fewestOrders

	switch {
	case c.count < 0 || c.count > 1000:
		return fmt.Errorf("-count is %d: it must be from 1 to 1,000", c.count)
	case isLowered || c.orders > 100_000:
		return fmt.Errorf("-orders is %d: it must be from %d, which the contract gives every account, to 100,000", c.orders, fewestOrders)
	case c.restore && c.orders > 0:
		return errors.New("-restore gives limits back, and -orders raises them: choose one")
	case isNothing:
		return errors.New("say what to do: -count, -orders, -restore or -suspend (go run ./loadtest/k6 accounts -help)")
	}

	return nil
}

// apply makes the changes one after the other, and stops at the first that fails.
func (f *accountsFile) apply(ctx context.Context, admin *client.Client, wanted accountChanges) error {
	if err := f.create(ctx, admin, wanted.count); err != nil {
		return err
	}

	if wanted.orders > 0 {
		if err := f.raise(ctx, admin, wanted.orders); err != nil {
			return err
		}
	}

	if wanted.restore {
		if err := f.restore(ctx, admin); err != nil {
			return err
		}
	}

	if wanted.suspend {
		return f.suspend(ctx, admin)
	}

	return nil
}

// absolutePath returns a path from the root, or the path itself if the working directory is not known.
func absolutePath(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return absolute
}

// adminOf returns a client of the admin API. Both settings must be given.
func adminOf(opsURL, key string) (*client.Client, error) {
	if opsURL == "" || key == "" {
		return nil, errors.New("set OPS_URL and ADMIN_KEY, such as by: set -a; . .data/demo.env; set +a")
	}
	base := strings.TrimRight(opsURL, "/") + "/api/admin/v1"
	return client.New(base, 8).As(base, key), nil
}

// create creates accounts until the file has so many. Each is written to the file before the next one is created, because
// its secret is shown only once.
func (f *accountsFile) create(ctx context.Context, admin *client.Client, count int) error {
	for n := len(f.accounts); n < count; n++ {
		created := accountRecord{Name: fmt.Sprintf("Load test %d", n+1), Limits: contractLimits()}
		if err := admin.Call(ctx, http.MethodPost, "/accounts", map[string]string{"name": created.Name}, &created); err != nil {
			return fmt.Errorf("create account %d: %w", n+1, err)
		}

		f.accounts = append(f.accounts, created)
		if err := f.write(); err != nil {
			return fmt.Errorf("account %s was created, and its secret could not be written: %w", created.AccountID, err)
		}

		f.created++
	}

	return nil
}

// raise lets each account send so many orders in 10 s. The limits that it had are written to the file before they are
// changed, so that they can be given back after a failure, too.
func (f *accountsFile) raise(ctx context.Context, admin *client.Client, orders int) error {
	for i := range f.accounts {
		a := &f.accounts[i]
		path, err := a.adminPath()
		if err != nil {
			return err
		}

		var current struct{ Limits limits }
		if err := admin.Call(ctx, http.MethodGet, path, nil, &current); err != nil {
			return fmt.Errorf("read the limits of account %d: %w", i+1, err)
		}

		if a.Before == nil {
			a.Before = &current.Limits
			if err := f.write(); err != nil {
				return err
			}
		}

		raised := raisedLimits(orders)
		raised.Stores = current.Limits.Stores
		if err := a.change(ctx, admin, path, raised); err != nil {
			return err
		}
		if err := f.write(); err != nil {
			return err
		}

		f.raised++
	}

	return nil
}

// restore gives each account the limits back that it had before they were raised.
func (f *accountsFile) restore(ctx context.Context, admin *client.Client) error {
	for i := range f.accounts {
		a := &f.accounts[i]
		if a.Before == nil {
			continue
		}

		path, err := a.adminPath()
		if err != nil {
			return err
		}

		if err := a.change(ctx, admin, path, a.Before); err != nil {
			return err
		}

		a.Before = nil
		if err := f.write(); err != nil {
			return err
		}

		f.restored++
	}

	return nil
}

// suspend suspends each account and takes it out of the file, which is removed when it has no account any more.
func (f *accountsFile) suspend(ctx context.Context, admin *client.Client) error {
	for len(f.accounts) > 0 {
		a := &f.accounts[0]
		path, err := a.adminPath()
		if err != nil {
			return err
		}
		if err := admin.Call(ctx, http.MethodPatch, path, map[string]bool{"suspended": true}, nil); err != nil {
			return fmt.Errorf("suspend account %s: %w", a.AccountID, err)
		}

		f.accounts = f.accounts[1:]
		f.suspended++
		if len(f.accounts) == 0 {
			return os.Remove(f.path)
		}
		if err := f.write(); err != nil {
			return err
		}
	}

	return nil
}

// change sets the limits of the account at a path of the admin API. The record then has what the service answered.
func (a *accountRecord) change(ctx context.Context, admin *client.Client, path string, to *limits) error {
	var changed struct{ Limits limits }
	err := admin.Call(ctx, http.MethodPatch, path, map[string]any{"limits": to.forChange()}, &changed)
	if err != nil {
		return fmt.Errorf("change the limits of account %s: %w", a.AccountID, err)
	}
	a.Limits = &changed.Limits
	return nil
}

// forChange returns limits as the admin API takes a change. A burst that is nil must be in it as null, because the API
// leaves as it is what is not in the body.
func (l *limits) forChange() map[string]any {
	withBurst := func(e endpointLimit) map[string]any {
		return map[string]any{"sustained": e.Sustained, "burst": e.Burst}
	}
	return map[string]any{
		"orders":      withBurst(l.Orders),
		"orderStatus": withBurst(l.OrderStatus),
		"cancel":      withBurst(l.Cancel),
		"token":       withBurst(l.Token),
		"stores":      withBurst(l.Stores),
	}
}

// adminPath returns the path of the account in the admin API.
func (a *accountRecord) adminPath() (string, error) {
	if a.AccountID == "" {
		return "", fmt.Errorf("the file has no accountId for %s: an operator knows it, and accounts that were created by this command have it", a.ClientID)
	}
	return "/accounts/" + url.PathEscape(a.AccountID), nil
}
