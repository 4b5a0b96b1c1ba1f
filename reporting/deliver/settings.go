package deliver

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/config"
)

// Settings are the section deliver of configs/reporting.yaml, where each key is explained.
type Settings struct {
	Targets []TargetSettings `yaml:"targets"`
	Daily   string           `yaml:"daily"`
}

// TargetSettings are an entry of deliver.targets.
type TargetSettings struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
}

var targetName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// Validate names the first key that is wrong.
func (s *Settings) Validate() error {
	if _, err := time.Parse("15:04", s.Daily); err != nil && s.Daily != "" {
		return errors.New("deliver.daily: want a time such as 07:00, or nothing")
	}
	for i, t := range s.Targets {
		key := fmt.Sprintf("deliver.targets[%d]", i)
		if !targetName.MatchString(t.Name) {
			return fmt.Errorf("%s.name: want a-z, 0-9 and -", key)
		}
		if slices.ContainsFunc(s.Targets[:i], func(other TargetSettings) bool { return other.Name == t.Name }) {
			return fmt.Errorf("%s.name: %s is there twice", key, t.Name)
		}
		if _, _, err := t.parse(); err != nil {
			return fmt.Errorf("%s.url: %w", key, err)
		}
	}
	return nil
}

// parse returns the address and, for S3, that of the server. It does not repeat what it refuses: there
// may be a password in it.
func (s TargetSettings) parse() (at, server *url.URL, err error) {
	at, err = url.Parse(s.URL)
	if err != nil || at.Hostname() == "" || at.Fragment != "" || path.Clean("/"+at.Path) != "/"+strings.Trim(at.Path, "/") {
		return nil, nil, errWant
	}
	query, user := at.Query(), at.User.Username()
	switch _, password := at.User.Password(); {
	case at.Scheme == "sftp" && user != "" && !password && at.RawQuery == "":
		return at, nil, nil
	case at.Scheme != "s3" || at.User != nil || at.Port() != "":
		return nil, nil, errWant
	}
	server, err = url.Parse(cmp.Or(query.Get("endpoint"), "https://s3.amazonaws.com"))
	query.Del("endpoint")
	query.Del("region")
	if err != nil || len(query) > 0 || server.Host == "" || server.User != nil || strings.Trim(server.Path, "/") != "" ||
		server.Scheme != "https" && server.Scheme != "http" {
		return nil, nil, errWant
	}
	return at, server, nil
}

var errWant = errors.New("want s3://bucket/prefix?endpoint=https://host:port&region=name or sftp://user@host:port/folder, without . and .. and without password")

// Open reads the secrets of all targets.
func (s *Settings) Open() (targets []*Target, err error) {
	for _, t := range s.Targets {
		target, wrong := Open(t)
		targets, err = append(targets, target), errors.Join(err, wrong)
	}
	return targets, err
}

// secrets reads two of a target from the environment, and names both when both are missing.
func (s TargetSettings) secrets(one, other string) (first, second string, err error) {
	first, missing := config.Secret(s.variable(one))
	second, absent := config.Secret(s.variable(other))
	return first, second, errors.Join(missing, absent)
}

func (s TargetSettings) variable(of string) string {
	return "DELIVER_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")) + "_" + of
}
