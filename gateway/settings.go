package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
)

const (
	receiversAuto  = "auto"
	receiversNever = "never"
)

// settings is the whole of configs/gateway.yaml, where each key is explained.
type settings struct {
	Environment     string           `yaml:"environment"`
	TrackingBaseURL string           `yaml:"tracking_base_url"`
	VendorAPI       vendorSettings   `yaml:"vendor_api"`
	FleetAPI        ListenerSettings `yaml:"fleet_api"` // without an address private_api serves fleets alone; its limits hold in any case
	PrivateAPI      privateSettings  `yaml:"private_api"`
	Pprof           bool             `yaml:"pprof"`
	SlowRequest     time.Duration    `yaml:"slow_request"`
	Redis           redisSettings    `yaml:"redis"`
	Webhook         struct {
		LocalReceivers string `yaml:"local_receivers"`
	} `yaml:"webhook"`
	FleetsStaleAfter time.Duration `yaml:"fleets_stale_after"`
	Shutdown         struct {
		Delay   time.Duration `yaml:"delay"`
		Timeout time.Duration `yaml:"timeout"`
	} `yaml:"shutdown"`
	Log     service.Log      `yaml:"log"`
	Tracing tracing.Settings `yaml:"tracing"`
}

// ListenerSettings are the keys that every listener has. The name is exported for the decoder,
// which sets no embedded field without.
type ListenerSettings struct {
	Addr                string        `yaml:"addr"`
	PublicURL           string        `yaml:"public_url"`
	TLSCertFile         string        `yaml:"tls_cert_file"`
	TLSKeyFile          string        `yaml:"tls_key_file"`
	MaxBodyBytes        int           `yaml:"max_body_bytes"`
	MaxHeaderBytes      int           `yaml:"max_header_bytes"`
	ReadTimeout         time.Duration `yaml:"read_timeout"`
	WriteTimeout        time.Duration `yaml:"write_timeout"`
	IdleTimeout         time.Duration `yaml:"idle_timeout"`
	MaxConnections      int           `yaml:"max_connections"`
	MaxConnectionsPerIP int           `yaml:"max_connections_per_ip"`
	ProxyProtocolFrom   []string      `yaml:"proxy_protocol_from"`
}

// vendorSettings are those of vendor_api.
type vendorSettings struct {
	ListenerSettings      `yaml:",inline"`
	WorkSettings          `yaml:",inline"`
	MaxInFlightPerAccount int `yaml:"max_in_flight_per_account"`
}

// privateSettings are those of private_api, whose limits fleets' requests at fleet_api share.
type privateSettings struct {
	ListenerSettings `yaml:",inline"`
	WorkSettings     `yaml:",inline"`
}

// WorkSettings bound the requests in work at once.
type WorkSettings struct {
	MaxInFlight          int `yaml:"max_in_flight"`
	MaxBodyBytesInFlight int `yaml:"max_body_bytes_in_flight"`
}

func (w *WorkSettings) validate(section string, maxBodyBytes int) error {
	return errors.Join(
		config.Demand(w.MaxInFlight >= 0, section+".max_in_flight: want 0 or more"),
		config.Demand(w.MaxBodyBytesInFlight >= callerDivisor*maxBodyBytes,
			section+".max_body_bytes_in_flight: want four times max_body_bytes or more"))
}

type redisSettings struct {
	service.Redis `yaml:",inline"`
	Pipelines     int `yaml:"pipelines"`
}

// maxPipelines is within the connections that go-redis keeps for pipelines.
const maxPipelines = 8

// Validate names the keys whose value is out of range.
func (s *settings) Validate() error {
	faults := []error{
		config.Demand(isBaseURL(s.TrackingBaseURL), "tracking_base_url: want an http or https URL without user, query and trailing slash"),
		config.Demand(s.Redis.Pipelines >= 0 && s.Redis.Pipelines <= maxPipelines, "redis.pipelines: want 0 to 8"),
		config.Demand(s.Webhook.LocalReceivers == receiversAuto || s.Webhook.LocalReceivers == receiversNever,
			`webhook.local_receivers: want "auto" or "never"`),
		config.Demand(s.SlowRequest >= 0, "slow_request: want 0s, which logs none, or more"),
		config.Demand(s.FleetsStaleAfter >= time.Second && s.FleetsStaleAfter <= time.Hour, "fleets_stale_after: want 1s to 1h"),
		config.Demand(s.FleetAPI.Addr == "" || s.FleetAPI.MaxBodyBytes <= s.PrivateAPI.MaxBodyBytes,
			"fleet_api.max_body_bytes: want at most private_api.max_body_bytes, because bodies share the room of private_api"),
		config.Demand(s.VendorAPI.MaxInFlightPerAccount >= 0, "vendor_api.max_in_flight_per_account: want 0 or more"),
		s.VendorAPI.WorkSettings.validate(vendorListener, s.VendorAPI.MaxBodyBytes),
		s.PrivateAPI.WorkSettings.validate(privateListener, s.PrivateAPI.MaxBodyBytes),
		config.Demand(s.Shutdown.Delay >= 0, "shutdown.delay: want 0s or more"),
		config.Demand(s.Shutdown.Timeout > 0, "shutdown.timeout: want more than 0s"),
		service.CheckEnvironment(s.Environment), s.Redis.Validate(), s.Log.Validate(), s.Tracing.Validate(),
	}

	listeners := map[string]string{}
	for _, l := range s.listeners() {
		other, taken := listeners[l.Addr]
		faults = append(faults, l.validate(l.name),
			config.Demand(!taken || strings.HasSuffix(l.Addr, ":0"), fmt.Sprintf("%s.addr: the same as %s.addr", l.name, other)))
		listeners[l.Addr] = l.name
	}

	return errors.Join(faults...)
}

type namedListener struct {
	*ListenerSettings
	name string
}

// listeners are those that are open.
func (s *settings) listeners() []namedListener {
	return slices.DeleteFunc([]namedListener{
		{&s.VendorAPI.ListenerSettings, vendorListener}, {&s.FleetAPI, fleetListener}, {&s.PrivateAPI.ListenerSettings, privateListener},
	},
		func(l namedListener) bool { return l.name == fleetListener && l.Addr == "" })
}

func isBaseURL(text string) bool {
	base, err := url.Parse(text)
	return err == nil && (base.Scheme == "https" || base.Scheme == "http") && base.Host != "" && base.RawQuery == "" &&
		base.Fragment == "" && base.User == nil && !strings.HasSuffix(text, "/")
}

func (l *ListenerSettings) validate(section string) error {
	addr := config.CheckAddr(l.Addr)
	_, networks := service.ParseNetworks(l.ProxyProtocolFrom)
	return errors.Join(
		config.Demand(addr == nil, fmt.Sprintf("%s.addr: %v", section, addr)),
		config.Demand(networks == nil, fmt.Sprintf("%s.proxy_protocol_from: %v", section, networks)),
		config.Demand(l.PublicURL == "" || isBaseURL(l.PublicURL),
			section+".public_url: want an http or https URL without user, query and trailing slash, or nothing"),
		config.Demand((l.TLSCertFile == "") == (l.TLSKeyFile == ""), section+": tls_cert_file and tls_key_file go together"),
		config.Demand(l.MaxBodyBytes >= 1024 && l.MaxBodyBytes <= 64<<20, section+".max_body_bytes: want 1024 to 67108864"),
		config.Demand(l.MaxHeaderBytes >= 1024 && l.MaxHeaderBytes <= 1<<20, section+".max_header_bytes: want 1024 to 1048576"),
		config.Demand(min(l.ReadTimeout, l.WriteTimeout, l.IdleTimeout) > 0,
			section+": read_timeout, write_timeout and idle_timeout must be more than 0s"),
		config.Demand(l.MaxConnections >= 1, section+".max_connections: want 1 or more"),
		config.Demand(l.MaxConnectionsPerIP >= 0, section+".max_connections_per_ip: want 0 or more"))
}

// localReceivers reports whether webhooks may go to http and to this machine.
func (s *settings) localReceivers() bool {
	return s.Environment == delivery.Sandbox && s.Webhook.LocalReceivers == receiversAuto
}

// check reads the listeners' certificates, and validates how Redis is reached.
func (s *settings) check(keys secrets) error {
	var faults []error
	for _, l := range s.listeners() {
		if _, err := tlsConfig(l.ListenerSettings, slog.New(slog.DiscardHandler)); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", l.name, err))
		}
	}
	return errors.Join(append(faults, s.ledgerConfig(keys, nil).Check())...)
}

// mistakes are what production does not start with: it gives out URLs that nobody can open,
// believes everybody, or has secrets that others can guess.
func (s *settings) mistakes(keys secrets) (ofSettings, ofSecrets error) {
	if s.Environment != delivery.Production {
		return nil, nil
	}

	faults := []error{config.PasswordMistake("redis.url", s.Redis.URL)}
	for _, public := range []struct{ key, variable, url string }{
		{"tracking_base_url", "TRACKING_BASE_URL", s.TrackingBaseURL},
		{"vendor_api.public_url", "VENDOR_API_URL", s.VendorAPI.PublicURL},
		{"fleet_api.public_url", "FLEET_API_URL", s.FleetAPI.PublicURL},
	} {
		if public.url == "" {
			continue
		}
		if err := service.PublicURLMistake(public.url); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w (%s)", public.key, err, public.variable))
		}
	}

	for _, l := range s.listeners() {
		public := service.PublicListener{
			Addr: l.Addr, TLS: l.TLSCertFile != "", Proxies: l.ProxyProtocolFrom, ConnectionsPerIP: l.MaxConnectionsPerIP,
			ProxiesKey: l.name + ".proxy_protocol_from", IPKey: "max_connections_per_ip",
		}
		if l.name == privateListener {
			public.ConnectionsPerIP = 0 // a private network may speak plain HTTP
		}
		faults = append(faults, public.Mistakes())
	}

	return errors.Join(faults...), keys.mistakes()
}

func (s *settings) ledgerConfig(keys secrets, log *slog.Logger) ledger.Config {
	connection := s.Redis.Ledger(s.Environment, log)
	connection.Pipelines, connection.Secrets = s.Redis.Pipelines, ledger.SecretKeys(keys.WebhookKeys)
	return connection
}

var secretNames = []string{"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS", "ADMIN_KEY", adminKeysVariable}

type secrets struct {
	TokenKeys    config.Keyring
	TrackingKeys delivery.TrackingKeys
	WebhookKeys  config.Keyring
	// AdminKey is one key or several with commas: each opens the admin API.
	AdminKey string
	// NamedAdminKeys open it, too, each in the name of one operator.
	NamedAdminKeys []operatorKey
}

// mistakes are secrets that others can guess, and those that stand in two places.
func (s *secrets) mistakes() error {
	rings := []config.NamedKeyring{
		{Name: "TOKEN_KEYS", Keyring: s.TokenKeys},
		{Name: "TRACKING_KEYS", Keyring: config.Keyring(s.TrackingKeys)},
		{Name: "WEBHOOK_KEYS", Keyring: s.WebhookKeys},
	}

	faults := []error{config.KeyMistakes(rings...), config.BearerMistakes("ADMIN_KEY", s.AdminKey, rings...)}
	for _, key := range config.SplitList(s.AdminKey) {
		digest := sha256.Sum256([]byte(key))
		for _, operator := range s.NamedAdminKeys {
			if operator.digest == digest {
				faults = append(faults, fmt.Errorf("%s: the key of %s is ADMIN_KEY, which is nobody's own", adminKeysVariable, operator.name))
			}
		}
	}

	return errors.Join(faults...)
}

// minAdminKey keeps a forgotten placeholder from opening the admin API.
const minAdminKey = 16

func readSecrets() (secrets, error) {
	var s secrets
	var faults [5]error
	s.TokenKeys, faults[0] = config.Keys("TOKEN_KEYS")
	tracking, err := config.Keys("TRACKING_KEYS")
	s.TrackingKeys, faults[1] = delivery.TrackingKeys(tracking), err
	s.WebhookKeys, faults[2] = config.Keys("WEBHOOK_KEYS")
	s.AdminKey, faults[3] = config.Secret("ADMIN_KEY")
	s.NamedAdminKeys, faults[4] = readAdminKeys()
	if err := errors.Join(faults[:]...); err != nil {
		return secrets{}, err
	}

	adminKeys := config.SplitList(s.AdminKey)
	if len(adminKeys) == 0 || slices.ContainsFunc(adminKeys, func(key string) bool { return len(key) < minAdminKey }) {
		return secrets{}, fmt.Errorf("ADMIN_KEY: want at least %d characters, of each where commas separate several", minAdminKey)
	}
	if err := s.TrackingKeys.Check(); err != nil {
		return secrets{}, fmt.Errorf("TRACKING_KEYS: %w", err)
	}

	return s, nil
}
