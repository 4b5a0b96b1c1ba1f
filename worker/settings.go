package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/worker/courier"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

// The roles of a worker.
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
	Redis       service.Redis     `yaml:"redis"`
	Ops         service.Ops       `yaml:"ops"`
	Log         service.Log       `yaml:"log"`
	Tracing     tracing.Settings  `yaml:"tracing"`
	Status      status.Settings   `yaml:"status"`
	Webhook     dispatch.Settings `yaml:"webhook"`
	Courier     courier.Settings  `yaml:"courier"`
}

// Validate names the keys whose value is out of range.
func (s *settings) Validate() error {
	roles := checkRoles(s.Roles)
	if roles != nil {
		roles = fmt.Errorf("roles: %w", roles)
	}
	return errors.Join(service.CheckEnvironment(s.Environment), s.Redis.Validate(), s.Ops.Validate(), roles,
		s.Log.Validate(), s.Tracing.Validate(), s.Status.Validate(), s.Webhook.Validate(), s.Courier.Validate())
}

func checkRoles(roles []string) error {
	return service.CheckRoles(roles, roleStatus, roleWebhook, roleCourier)
}

// chooseRoles narrows the configured roles to those asked for ("status,webhook";
// empty: all). The sandbox courier runs in a sandbox in mode auto only: elsewhere it
// is left out, and asking for it in production is an error.
func (s *settings) chooseRoles(asked string) ([]string, error) {
	roles := slices.Sorted(slices.Values(s.Roles))
	if asked != "" {
		roles = slices.Sorted(strings.SplitSeq(asked, ","))
		if err := checkRoles(roles); err != nil {
			return nil, fmt.Errorf("-roles: %w", err)
		}
	}
	plays := s.Environment == delivery.Sandbox && s.Courier.Mode == courier.Auto
	for _, role := range roles {
		switch {
		case !slices.Contains(s.Roles, role):
			return nil, fmt.Errorf("-roles: the configuration does not enable %s", role)
		case asked != "" && role == roleCourier && s.Environment != delivery.Sandbox:
			return nil, fmt.Errorf("-roles: %s plays in the sandbox only", roleCourier)
		}
	}
	roles = slices.DeleteFunc(roles, func(role string) bool { return role == roleCourier && !plays })
	return slices.Compact(roles), nil
}
