package adminapi

import (
	"errors"
	"net/url"
	"strings"
)

// Settings say where the admin API is.
type Settings struct {
	// URL is the gateway's private listener, such as http://gateway:8081,
	// without the API's own path.
	URL string `yaml:"url"`
}

// Validate names the key whose value is wrong; it never shows the value, which
// could hold a password.
func (s *Settings) Validate() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || strings.Contains(s.URL, "#") || strings.HasSuffix(s.URL, "/") {
		return errors.New("url: want http:// or https:// and a host, without credentials, query and slash at the end")
	}
	return nil
}
