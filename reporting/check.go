package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"vendorapi/internal/config"
	"vendorapi/internal/service"
	"vendorapi/reporting/panel/auth"
)

// The flags of the commands that run until SIGTERM.
const (
	checkFlag  = "check-config"
	healthFlag = "health"
)

func addCheckFlags(c *cobra.Command) {
	c.Flags().Bool(checkFlag, false, "judge the settings and secrets without connecting, print what is in force, and end")
	c.Flags().Bool(healthFlag, false, "ask the one that runs here with the same settings whether it is ready, and end: 0 if so, else 1")
}

// flagSet reports whether a flag without a value was given.
func flagSet(c *cobra.Command, name string) bool {
	set, err := c.Flags().GetBool(name)
	return err == nil && set
}

// secretNames are the variables that hold the panel's secrets; the other roles
// have none.
var secretNames = []string{auth.UsersVariable, auth.TokensVariable, "ADMIN_KEY", "TRACKING_KEYS"}

// checkConfig judges everything that can be judged without connecting, for the
// given roles or else those of the settings, and writes what is in force.
func checkConfig(c *cobra.Command, roles []string) error {
	path, err := c.Flags().GetString(configFlag)
	if err != nil {
		return err
	}
	var s settings
	if err := config.Load(path, &s); err != nil {
		// What the settings lack, and the secrets of the shipped roles.
		return errors.Join(err, checkSecrets())
	}
	if err := s.narrow(roles); err != nil {
		return err
	}
	connection := s.ledgerConfig(nil)
	wrong, secrets := config.Locate(path, connection.Check()), []string(nil)
	if slices.Contains(s.Roles, rolePanel) {
		secrets = secretNames
		if err := checkSecrets(); err != nil {
			wrong = errors.Join(wrong, err)
		} else if _, err := newPanel(&s, nil, prometheus.NewRegistry()); errors.Is(err, errInsecure) {
			wrong = errors.Join(wrong, config.Locate(path, err))
		} else if err != nil {
			wrong = errors.Join(wrong, config.Locate(path, fmt.Errorf("panel: %w", err)))
		}
	}
	if wrong != nil {
		return wrong
	}
	return config.WriteEffective(c.OutOrStdout(), path, &s, secrets...)
}

// checkSecrets names every secret of the panel that is missing or malformed.
func checkSecrets() error {
	_, people := auth.FromEnvironment()
	_, key := config.Secret("ADMIN_KEY")
	_, tracking := config.Keys("TRACKING_KEYS")
	return errors.Join(people, key, tracking)
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

// askHealth is --health.
func askHealth(c *cobra.Command) error {
	s, _, err := loadSettings(c)
	if err != nil {
		return err
	}
	return service.Ask(c.Context(), s.Ops.Addr, false)
}
