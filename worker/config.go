package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"vendorapi/internal/config"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/worker/courier"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

// Environments (spec, "Sandbox").
const (
	production = "production"
	sandbox    = "sandbox"
)

// The roles a worker can take.
const (
	roleStatus  = "status"
	roleWebhook = "webhook"
	roleCourier = "courier"
)

// settings is the whole of configs/worker.yaml, where each key is explained.
type settings struct {
	Environment string            `yaml:"environment"`
	Instance    string            `yaml:"instance"`
	Roles       []string          `yaml:"roles"`
	Redis       redisSettings     `yaml:"redis"`
	Ops         opsSettings       `yaml:"ops"`
	Log         logSettings       `yaml:"log"`
	Tracing     tracing.Settings  `yaml:"tracing"`
	Status      status.Settings   `yaml:"status"`
	Webhook     dispatch.Settings `yaml:"webhook"`
	Courier     courier.Settings  `yaml:"courier"`
}

type redisSettings struct {
	URL        string `yaml:"url"`
	Partitions int    `yaml:"partitions"`
	PoolSize   int    `yaml:"pool_size"`
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
}

type opsSettings struct {
	Addr  string `yaml:"addr"`
	Pprof bool   `yaml:"pprof"`
}

type logSettings struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Validate names the first key whose value is out of range.
func (s *settings) Validate() error {
	switch {
	case s.Environment != production && s.Environment != sandbox:
		return fmt.Errorf("environment: want %q or %q", production, sandbox)
	case s.Redis.URL == "":
		return errors.New("redis.url: missing")
	case s.Redis.Partitions < 1 || s.Redis.Partitions > 1024:
		return errors.New("redis.partitions: want 1 to 1024")
	case s.Redis.PoolSize < 0:
		return errors.New("redis.pool_size: want 0 or more")
	}
	if err := config.CheckAddr(s.Ops.Addr); err != nil {
		return fmt.Errorf("ops.addr: %w", err)
	}
	if err := checkRoles(s.Roles); err != nil {
		return fmt.Errorf("roles: %w", err)
	}
	return errors.Join(service.CheckLog(s.Log.Level, s.Log.Format), s.Tracing.Validate(), s.Status.Validate(), s.Webhook.Validate(), s.Courier.Validate())
}

func checkRoles(roles []string) error {
	for _, role := range roles {
		if role != roleStatus && role != roleWebhook && role != roleCourier {
			return fmt.Errorf("%q is not one of %s, %s, %s", role, roleStatus, roleWebhook, roleCourier)
		}
	}
	if len(roles) == 0 {
		return errors.New("none")
	}
	return nil
}

// chooseRoles narrows the configured roles to those asked for ("status,webhook";
// empty: all). The sandbox courier plays in a sandbox in mode auto only:
// elsewhere it is left out, and asking for it in production is an error.
func (s *settings) chooseRoles(asked string) ([]string, error) {
	roles := s.Roles
	if asked != "" {
		roles = strings.Split(asked, ",")
		if err := checkRoles(roles); err != nil {
			return nil, fmt.Errorf("-roles: %w", err)
		}
		for _, role := range roles {
			if !slices.Contains(s.Roles, role) {
				return nil, fmt.Errorf("-roles: the configuration does not enable %s", role)
			}
		}
		if s.Environment != sandbox && slices.Contains(roles, roleCourier) {
			return nil, fmt.Errorf("-roles: %s plays in the sandbox only", roleCourier)
		}
	}
	plays := s.Environment == sandbox && s.Courier.Mode == courier.Auto
	chosen := slices.DeleteFunc(slices.Clone(roles), func(role string) bool {
		return role == roleCourier && !plays
	})
	slices.Sort(chosen)
	return slices.Compact(chosen), nil
}

// consumer names this process within the consumer groups: the same after a
// restart, so that it finds its own pending entries, and never shared.
func (s *settings) consumer() (string, error) {
	if s.Instance != "" {
		return s.Instance, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("instance: not set, and the host has no name: %w", err)
	}
	return host, nil
}
