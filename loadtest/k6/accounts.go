package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// accountRecord is an account in the file ACCOUNTS. Only the credentials are required.
type accountRecord struct {
	AccountID    string `json:"accountId,omitempty"`
	Name         string `json:"name,omitempty"`
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`

	// Limits are the account's limits; a record without them has the contract's.
	Limits *limits `json:"limits,omitempty"`

	// Before are the limits that the account had before they were raised, which RESTORE=yes gives
	// back; nil if they are not raised.
	Before *limits `json:"limitsBefore,omitempty"`
}

// accountsSetting returns the accounts as the scripts read them, as a JSON list. It holds secrets.
func accountsSetting(accounts []*account) (string, error) {
	var credentials []map[string]string
	for _, a := range accounts {
		credentials = append(credentials, map[string]string{"clientId": a.ClientID, "clientSecret": a.ClientSecret})
	}
	list, err := json.Marshal(credentials)
	return string(list), err
}

// givenAccounts returns the accounts of the settings: those of ACCOUNTS, or the one of CLIENT_ID and
// CLIENT_SECRET. Each has limits.
func givenAccounts() ([]accountRecord, error) {
	given := os.Getenv("ACCOUNTS")
	if given == "" {
		account := accountRecord{
			AccountID:    os.Getenv("ACCOUNT_ID"),
			ClientID:     os.Getenv("CLIENT_ID"),
			ClientSecret: os.Getenv("CLIENT_SECRET"),
			Limits:       contractLimits(),
		}
		if account.ClientID == "" || account.ClientSecret == "" {
			return nil, errors.New("BASE_URL is set: name the accounts to use, too, by ACCOUNTS=file or by CLIENT_ID and CLIENT_SECRET")
		}

		return []accountRecord{account}, nil
	}

	return accountsIn(given)
}

// accountsIn reads ACCOUNTS, which is a JSON list or a file with one. No error repeats it, because it may be a secret.
func accountsIn(given string) ([]accountRecord, error) {
	if isJSON(given) {
		return readAccounts([]byte(given))
	}

	text, err := os.ReadFile(given)
	var reason *os.PathError
	if errors.As(err, &reason) {
		return nil, fmt.Errorf("ACCOUNTS names no file that can be read: %w", reason.Err) // without its path
	}

	if err != nil {
		return nil, errors.New("ACCOUNTS names no file that can be read")
	}

	return readAccounts(text)
}

// isJSON reports whether ACCOUNTS is the accounts themselves and no file.
func isJSON(given string) bool {
	text := strings.TrimSpace(given)
	return text != "" && strings.ContainsRune(`[{"`, rune(text[0]))
}

// readAccounts reads a JSON list of at least one account. An account without limits gets the
// contract's. The text holds secrets, so no error repeats it.
func readAccounts(text []byte) ([]accountRecord, error) {
	var accounts []accountRecord
	err := json.Unmarshal(text, &accounts)
	if err != nil || len(accounts) == 0 {
		return nil, errors.New(`ACCOUNTS must be a JSON list of {"clientId": …, "clientSecret": …}, or a file with one`)
	}

	for i := range accounts {
		a := &accounts[i]
		if a.ClientID == "" || a.ClientSecret == "" {
			return nil, fmt.Errorf("ACCOUNTS: account %d has no clientId or no clientSecret", i+1)
		}
		if a.Limits == nil {
			a.Limits = contractLimits()
		}
	}

	return accounts, nil
}

var (
	schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	apiPattern    = regexp.MustCompile(`/api/(vendor|fleet)(/.*)?$`)

	// privatePattern matches the beginning of a URL without a scheme whose host is private, or has no dot.
	privatePattern = regexp.MustCompile(`^([^.:/[\]]+|\[::1\]|127\.[\d.]+|10\.[\d.]+|192\.168\.[\d.]+|172\.(1[6-9]|2\d|3[01])\.[\d.]+)(:|/|$)`)
)

// originOf returns the part of a URL before /api/vendor/v1, without a slash at its end. A URL without
// a scheme gets http on hosts of privatePattern, and https elsewhere. There may be a password
// in the URL, so the error does not repeat it. It reads BASE_URL as the scripts do (originOf in
// loadtest/lib/settings.js).
func originOf(text string) (string, error) {
	given := strings.TrimSpace(text)
	if !schemePattern.MatchString(given) {
		scheme := "https://"
		if privatePattern.MatchString(given) {
			scheme = "http://"
		}
		given = scheme + given
	}

	u, err := url.Parse(given)
	if err != nil || !isPlain(u) {
		return "", errors.New("BASE_URL must be like https://api.example.com, without credentials, query or fragment")
	}

	path := strings.TrimRight(apiPattern.ReplaceAllString(u.Path, ""), "/")

	return u.Scheme + "://" + u.Host + path, nil
}

// isPlain reports whether a URL has a scheme of HTTP, a host and perhaps a path, and nothing else.
func isPlain(u *url.URL) bool {
	isHTTP := u.Scheme == "http" || u.Scheme == "https"
	hasHost := u.Hostname() != "" && !strings.HasSuffix(u.Host, ":")
	hasMore := u.User != nil || u.RawQuery != "" || u.Fragment != ""

	return isHTTP && hasHost && !hasMore
}
