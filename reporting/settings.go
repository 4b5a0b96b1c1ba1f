package main

import (
	"errors"
	"fmt"

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
	Redis       service.Redis      `yaml:"redis"`
	ClickHouse  archive.Settings   `yaml:"clickhouse"`
	Ops         service.Ops        `yaml:"ops"`
	Log         service.Log        `yaml:"log"`
	Tracing     tracing.Settings   `yaml:"tracing"`
	Export      export.Settings    `yaml:"export"`
	Reconcile   reconcile.Settings `yaml:"reconcile"`
	Panel       panelSettings      `yaml:"panel"`
}

// The roles of `reporting serve`.
const (
	roleExport    = "export"
	roleReconcile = "reconcile"
	rolePanel     = "panel"
)

// Validate names the keys whose value is out of range.
func (s *settings) Validate() error {
	roles, history := checkRoles(s.Roles), s.ClickHouse.Validate()
	if roles != nil {
		roles = fmt.Errorf("roles: %w", roles)
	}
	if history != nil {
		history = fmt.Errorf("clickhouse: %w", history)
	}
	return errors.Join(service.CheckEnvironment(s.Environment), s.Redis.Validate(), s.Ops.Validate(), roles, history,
		s.Log.Validate(), s.Tracing.Validate(), s.Export.Validate(), s.Reconcile.Validate(), s.Panel.Validate())
}

func checkRoles(roles []string) error {
	return service.CheckRoles(roles, roleExport, roleReconcile, rolePanel)
}

// narrow makes the roles those that were asked for; none: those of the settings.
func (s *settings) narrow(roles []string) error {
	if len(roles) == 0 {
		return nil
	}
	if err := checkRoles(roles); err != nil {
		return fmt.Errorf("--roles: %w", err)
	}
	s.Roles = roles
	return nil
}
