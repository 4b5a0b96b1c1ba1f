package main

import (
	"errors"
	"fmt"
	"os"

	"vendorapi/internal/config"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/reporting/reconcile"
)

// settings is the whole of configs/reporting.yaml, where each key is explained.
type settings struct {
	Environment string             `yaml:"environment"`
	Instance    string             `yaml:"instance"`
	Roles       []string           `yaml:"roles"`
	Redis       redisSettings      `yaml:"redis"`
	ClickHouse  archive.Settings   `yaml:"clickhouse"`
	Ops         opsSettings        `yaml:"ops"`
	Log         logSettings        `yaml:"log"`
	Tracing     tracing.Settings   `yaml:"tracing"`
	Export      export.Settings    `yaml:"export"`
	Reconcile   reconcile.Settings `yaml:"reconcile"`
	Panel       panelSettings      `yaml:"panel"`
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

// The roles of `reporting serve`.
const (
	roleExport    = "export"
	roleReconcile = "reconcile"
	rolePanel     = "panel"
)

// Validate names the first key whose value is out of range.
func (s *settings) Validate() error {
	switch {
	case s.Environment != "production" && s.Environment != "sandbox":
		return errors.New("environment: want \"production\" or \"sandbox\"")
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
	if err := s.ClickHouse.Validate(); err != nil {
		return fmt.Errorf("clickhouse: %w", err)
	}
	return errors.Join(service.CheckLog(s.Log.Level, s.Log.Format), s.Tracing.Validate(), s.Export.Validate(), s.Reconcile.Validate(), s.Panel.Validate())
}

func checkRoles(roles []string) error {
	for _, role := range roles {
		if role != roleExport && role != roleReconcile && role != rolePanel {
			return fmt.Errorf("%q is not one of %s, %s, %s", role, roleExport, roleReconcile, rolePanel)
		}
	}
	if len(roles) == 0 {
		return errors.New("none")
	}
	return nil
}

// consumer names this process within the consumer group: the same after a
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
