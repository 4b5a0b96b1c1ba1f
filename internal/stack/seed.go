package stack

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"vendorapi/internal/stack/client"
)

// demoCoverage covers the provinces İstanbul, Bursa, Ankara, İzmir, Antalya
// and Adana with room to spare, in this order.
//
//go:embed coverage.geojson
var demoCoverage []byte

// Demo is what a person or a test needs to use the running system (design,
// section 2). It is written to demo.json; what has not been built is absent.
type Demo struct {
	BaseURL  string      `json:"baseUrl"` // origin of the Vendor API
	OpsURL   string      `json:"opsUrl"`  // origin of the fleet and admin APIs
	AdminKey string      `json:"adminKey"`
	Account  DemoAccount `json:"account"`
	Webhook  *Webhook    `json:"webhook,omitempty"`
	Fleet    DemoFleet   `json:"fleet"`

	PanelURL      string     `json:"panelUrl,omitempty"`
	ClickHouseURL string     `json:"clickhouseUrl,omitempty"`
	Panel         *DemoPanel `json:"panel,omitempty"`
	ReportsToken  string     `json:"reportsToken,omitempty"` // bearer, role finance
}

// DemoPanel is who may sign in to the panel, with every role.
type DemoPanel struct {
	User     string `json:"user"`
	Password string `json:"password"`
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

// envFile holds what demo.json holds as shell variables: `. .data/demo.env`.
const envFile = "demo.env"

// shell is d for a shell, and the variables of this run. No value has a character
// that a shell would read as anything else.
func (d *Demo) shell(run string) []byte {
	text := fmt.Appendf(nil, `BASE_URL='%s'
OPS_URL='%s'
ADMIN_KEY='%s'
ACCOUNT_ID='%s'
CLIENT_ID='%s'
CLIENT_SECRET='%s'
FLEET_ID='%s'
FLEET_CLIENT_ID='%s'
FLEET_CLIENT_SECRET='%s'
%s`, d.BaseURL, d.OpsURL, d.AdminKey, d.Account.AccountID, d.Account.ClientID, d.Account.ClientSecret,
		d.Fleet.FleetID, d.Fleet.ClientID, d.Fleet.ClientSecret, run)
	if d.Panel != nil {
		text = fmt.Appendf(text, "PANEL_URL='%s'\nPANEL_USER='%s'\nPANEL_PASSWORD='%s'\nREPORTS_TOKEN='%s'\nCLICKHOUSE_URL='%s'\n",
			d.PanelURL, d.Panel.User, d.Panel.Password, d.ReportsToken, d.ClickHouseURL)
	}
	if d.Webhook != nil {
		text = fmt.Appendf(text, "WEBHOOK_URL='%s'\nWEBHOOK_SECRET='%s'\n", d.Webhook.URL, d.Webhook.Secret)
	}
	return text
}

// The names of the two demo files. The second holds what has been created so
// far while the first is not complete: secrets are shown only once.
const (
	demoFile    = "demo.json"
	partialFile = "demo.json.partial"
)

// seeder creates the demo account and fleet once per ledger, over any number
// of starts and crashes.
type seeder struct {
	data  *dataDir
	admin *client.Client
	demo  Demo
}

// load takes over what earlier runs created.
func (s *seeder) load() error {
	for _, name := range []string{partialFile, demoFile} {
		content, err := os.ReadFile(s.data.file(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		if err := json.Unmarshal(content, &s.demo); err != nil {
			return fmt.Errorf("seed: %s: %w", s.data.file(name), err)
		}
		return nil
	}
	return nil
}

// seed makes sure that account, fleet and, unless webhookURL is empty, the
// webhook exist. Something that the ledger no longer knows (its data was
// removed) is created anew.
func (s *seeder) seed(ctx context.Context, webhookURL string) error {
	if err := s.ensureAccount(ctx); err != nil {
		return fmt.Errorf("seed the demo account: %w", err)
	}
	if err := s.ensureFleet(ctx); err != nil {
		return fmt.Errorf("seed the demo fleet: %w", err)
	}
	if err := s.ensureWebhook(ctx, webhookURL); err != nil {
		return fmt.Errorf("seed the demo webhook: %w", err)
	}
	return nil
}

func (s *seeder) ensureAccount(ctx context.Context) error {
	if id := s.demo.Account.AccountID; id != "" {
		known, err := s.admin.Do(ctx, http.MethodGet, "/accounts/"+id, nil)
		if err != nil {
			return err
		}
		if known.OK() {
			return nil
		}
		if known.Status != http.StatusNotFound {
			return known.Err()
		}
		s.demo.Webhook = nil // it went with its account
	}
	err := s.admin.Call(ctx, http.MethodPost, "/accounts", map[string]string{"name": "Demo Restoranları"}, &s.demo.Account)
	if err != nil {
		return err
	}
	return s.save(partialFile)
}

func (s *seeder) ensureFleet(ctx context.Context) error {
	if id := s.demo.Fleet.FleetID; id != "" {
		// A patch of nothing asks whether the fleet is there.
		known, err := s.admin.Do(ctx, http.MethodPatch, "/fleets/"+id, struct{}{})
		if err != nil {
			return err
		}
		if known.OK() {
			return nil
		}
		if known.Status != http.StatusNotFound {
			return known.Err()
		}
	}
	err := s.admin.Call(ctx, http.MethodPost, "/fleets", map[string]any{
		"name":               "Demo Kurye",
		"subRegion":          "Demo Bölgesi",
		"avgDeliveryMinutes": 25,
		"avgPickupMinutes":   10,
		"coverage":           json.RawMessage(demoCoverage),
	}, &s.demo.Fleet)
	if err != nil {
		return err
	}
	return s.save(partialFile)
}

// ensureWebhook registers url if the account has none, or if it is not the one
// that this seeder registered last. A person may have set another one since; a
// restart leaves that alone.
func (s *seeder) ensureWebhook(ctx context.Context, url string) error {
	if url == "" {
		return nil
	}
	path := "/accounts/" + s.demo.Account.AccountID + "/webhook"
	if s.demo.Webhook != nil && s.demo.Webhook.URL == url {
		known, err := s.admin.Do(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		if known.Status != http.StatusNotFound {
			return known.Err()
		}
		s.demo.Webhook = nil // somebody removed it, and its secret with it
	}
	var set Webhook
	if err := s.admin.Call(ctx, http.MethodPut, path, map[string]string{"url": url}, &set); err != nil {
		return err
	}
	switch {
	case set.Secret != "":
	case s.demo.Webhook != nil: // another URL keeps the secret, which is not shown again
		set.Secret = s.demo.Webhook.Secret
	default: // registered by somebody else: only a fresh secret can be known here
		if err := s.admin.Call(ctx, http.MethodPost, path+"/rotate", nil, &set); err != nil {
			return err
		}
	}
	s.demo.Webhook = &Webhook{URL: url, Secret: set.Secret}
	return s.save(partialFile)
}

// finish publishes demo.json: from now on everything in it works.
func (s *seeder) finish(run string) error {
	if err := s.data.write(envFile, s.demo.shell(run)); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := s.save(demoFile); err != nil {
		return err
	}
	if err := os.Remove(s.data.file(partialFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("seed: %w", err)
	}
	return nil
}

func (s *seeder) save(name string) error {
	content, err := json.MarshalIndent(s.demo, "", "  ")
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	if err := s.data.write(name, append(content, '\n')); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	return nil
}
