package stack

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"vendorapi/internal/stack/client"
)

// demoCoverage covers the provinces İstanbul, Bursa, Ankara, İzmir, Antalya
// and Adana with a margin, in this order.
//
//go:embed coverage.geojson
var demoCoverage []byte

// Demo is what a person or a test needs to use the running system (decisions,
// "Make run"). It is written to demo.json; what has not been built is absent.
type Demo struct {
	BaseURL  string      `json:"baseUrl"` // origin of the Vendor API
	OpsURL   string      `json:"opsUrl"`  // origin of the fleet and admin APIs
	AdminKey string      `json:"adminKey"`
	Account  DemoAccount `json:"account"`
	Webhook  Webhook     `json:"webhook,omitzero"`
	Fleet    DemoFleet   `json:"fleet"`

	PanelURL      string `json:"panelUrl,omitempty"`
	ClickHouseURL string `json:"clickhouseUrl,omitempty"`
	Panel         struct {
		User     string `json:"user"`
		Password string `json:"password"`
	} `json:"panel,omitzero"` // who may sign in, with every role
	ReportsToken string `json:"reportsToken,omitempty"` // bearer, role finance
}

// DemoAccount is the demo vendor with its credentials.
type DemoAccount struct {
	AccountID    string `json:"accountId"`
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
}

// DemoFleet is the demo fleet with its credentials.
type DemoFleet struct {
	FleetID      string `json:"fleetId"`
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
}

// Webhook is where the demo vendor's events go.
type Webhook struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

// The demo files. The second holds what has been created so far while the first is not
// complete: secrets are shown only once. The third is for shells: `. .data/demo.env`.
const (
	demoFile    = "demo.json"
	partialFile = "demo.json.partial"
	envFile     = "demo.env"
)

// seed creates the demo account, the fleet and, when a URL is given, the webhook once
// per ledger, over any number of starts and crashes. What the ledger no longer knows
// (its data was removed) is created again.
func (s *Stack) seed(ctx context.Context) (err error) {
	o, d := &s.options, &s.Demo
	for _, name := range []string{partialFile, demoFile} {
		content, err := os.ReadFile(s.data.file(name))
		if err == nil {
			err = json.Unmarshal(content, d)
		}

		if err == nil {
			break
		}

		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("seed: %s: %w", name, err)
		}
	}

	d.BaseURL, d.OpsURL = origin(o.GatewayAddr), origin(o.OpsAddr)
	d.AdminKey, err = s.data.adminKey()
	if err != nil {
		return err
	}

	admin := client.New("", 2).As(d.OpsURL+"/api/admin/v1", d.AdminKey)
	if o.Receiver {
		o.WebhookURL = origin(o.ReceiverAddr) + "/"
	}

	account := d.Account.AccountID
	if err := s.ensure(ctx, admin, "/accounts", account, http.MethodGet, nil,
		map[string]string{"name": "Demo Restoranları"}, &d.Account); err != nil {
		return fmt.Errorf("seed the demo account: %w", err)
	}

	if d.Account.AccountID != account {
		d.Webhook = Webhook{} // it went with its account
	}

	// A patch of nothing asks whether the fleet is there.
	if err := s.ensure(ctx, admin, "/fleets", d.Fleet.FleetID, http.MethodPatch, struct{}{}, map[string]any{
		"name": "Demo Kurye", "subRegion": "Demo Bölgesi", "avgDeliveryMinutes": 25, "avgPickupMinutes": 10,
		"coverage": json.RawMessage(demoCoverage),
	}, &d.Fleet); err != nil {
		return fmt.Errorf("seed the demo fleet: %w", err)
	}

	if o.WebhookURL == "" {
		return nil
	}
	if err := s.ensureWebhook(ctx, admin); err != nil {
		return fmt.Errorf("seed the demo webhook: %w", err)
	}

	return nil
}

// exists reports whether the ledger knows what a call names: not, when it answers 404.
func exists(ctx context.Context, admin *client.Client, method, path string, body any) (bool, error) {
	a, err := admin.Do(ctx, method, path, body)
	if err != nil || a.Status == http.StatusNotFound {
		return false, err
	}
	return true, a.Err()
}

// ensure creates what has no id yet, or one that the ledger does not know when it is
// asked by a method and its body.
func (s *Stack) ensure(ctx context.Context, admin *client.Client, kind, id, method string, ask, body, created any) error {
	if id != "" {
		if known, err := exists(ctx, admin, method, kind+"/"+id, ask); known || err != nil {
			return err
		}
	}

	if err := admin.Call(ctx, http.MethodPost, kind, body, created); err != nil {
		return err
	}
	return s.save(partialFile)
}

// ensureWebhook registers the URL if the account has none, or if it is not the one
// that was registered here last. A person may have set another one since; a
// restart leaves that alone.
func (s *Stack) ensureWebhook(ctx context.Context, admin *client.Client) error {
	path, url := "/accounts/"+s.Demo.Account.AccountID+"/webhook", s.options.WebhookURL
	if s.Demo.Webhook.URL == url {
		if known, err := exists(ctx, admin, http.MethodGet, path, nil); known || err != nil {
			return err
		}
		s.Demo.Webhook = Webhook{} // somebody removed it, and its secret with it
	}

	var set Webhook
	if err := admin.Call(ctx, http.MethodPut, path, map[string]string{"url": url}, &set); err != nil {
		return err
	}

	switch {
	case set.Secret != "":
	case s.Demo.Webhook.Secret != "": // another URL keeps the secret, which is not shown again
		set.Secret = s.Demo.Webhook.Secret
	default: // registered by somebody else: only a fresh secret can be known here
		if err := admin.Call(ctx, http.MethodPost, path+"/rotate", nil, &set); err != nil {
			return err
		}
	}

	s.Demo.Webhook = Webhook{URL: url, Secret: set.Secret}

	return s.save(partialFile)
}

// publish writes demo.env and demo.json: from now on everything in them works.
func (s *Stack) publish(context.Context) error {
	if err := errors.Join(s.data.write(envFile, s.shell()), s.save(demoFile)); err != nil {
		return err
	}
	return os.RemoveAll(s.data.file(partialFile)) // after a restart there is none
}

// shell is what demo.json holds, and what commands of this run need besides, as
// variables of a shell, without those that have no value. No value has a character that
// a shell would read as anything else.
func (s *Stack) shell() []byte {
	d, o, ca := &s.Demo, &s.options, ""
	if s.Redis != nil && s.Redis.tls != nil {
		ca = s.Redis.tls.CAFile
	}

	var text strings.Builder
	for _, v := range [][2]string{
		{"BASE_URL", d.BaseURL}, {"OPS_URL", d.OpsURL}, {"ADMIN_KEY", d.AdminKey},
		{"ACCOUNT_ID", d.Account.AccountID}, {"CLIENT_ID", d.Account.ClientID}, {"CLIENT_SECRET", d.Account.ClientSecret},
		{"FLEET_ID", d.Fleet.FleetID}, {"FLEET_CLIENT_ID", d.Fleet.ClientID}, {"FLEET_CLIENT_SECRET", d.Fleet.ClientSecret},
		{"RUN_REDIS_URL", s.RedisURL(ReportingUser)}, {"BACKUP_REDIS_URL", s.RedisURL(BackupUser)},
		{"WORKER_OPS_ADDR", o.WorkerOpsAddr}, {"REDIS_CA_FILE", ca},
		{"REPORTING_OPS_ADDR", o.ReportingOpsAddr}, {"RUN_CLICKHOUSE_URL", s.ClickHouseURL()}, {"CLICKHOUSE_URL", d.ClickHouseURL},
		{"PANEL_URL", d.PanelURL}, {"PANEL_USER", d.Panel.User}, {"PANEL_PASSWORD", d.Panel.Password}, {"REPORTS_TOKEN", d.ReportsToken},
		{"WEBHOOK_URL", d.Webhook.URL}, {"WEBHOOK_SECRET", d.Webhook.Secret},
	} {
		if v[1] != "" {
			fmt.Fprintf(&text, "%s='%s'\n", v[0], v[1])
		}
	}

	return []byte(text.String())
}

func (s *Stack) save(name string) error {
	content, err := json.MarshalIndent(s.Demo, "", "  ")
	if err == nil {
		err = s.data.write(name, append(content, '\n'))
	}

	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	return nil
}
