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

	// Limits are those that the account has; absent: the contract's.
	Limits *limits `json:"limits,omitempty"`

	// Before are the limits that RESTORE=yes gives back; nil unless they were raised.
	Before *limits `json:"limitsBefore,omitempty"`
}

// accountsSetting is the accounts as the scripts read them.
func accountsSetting(accounts []*account) (string, error) {
	var credentials []map[string]string
	for _, a := range accounts {
		credentials = append(credentials, map[string]string{"clientId": a.ClientID, "clientSecret": a.ClientSecret})
	}
	list, err := json.Marshal(credentials)
	return string(list), err
}

// givenAccounts reads those of the settings: ACCOUNTS, or CLIENT_ID and CLIENT_SECRET.
func givenAccounts() ([]accountRecord, error) {
	given := os.Getenv("ACCOUNTS")
	if given == "" {
		one := accountRecord{AccountID: os.Getenv("ACCOUNT_ID"), ClientID: os.Getenv("CLIENT_ID"), ClientSecret: os.Getenv("CLIENT_SECRET")}
		if one.ClientID == "" || one.ClientSecret == "" {
			return nil, errors.New("BASE_URL is set: name the accounts to use, too, by ACCOUNTS=file or by CLIENT_ID and CLIENT_SECRET")
		}
		one.Limits = contractLimits()
		return []accountRecord{one}, nil
	}

	text := []byte(given)
	if !strings.HasPrefix(strings.TrimSpace(given), "[") {
		var err error
		if text, err = os.ReadFile(given); err != nil {
			return nil, fmt.Errorf("ACCOUNTS: %w", err)
		}
	}
	return readAccounts(text)
}

func readAccounts(text []byte) ([]accountRecord, error) {
	var accounts []accountRecord
	err := json.Unmarshal(text, &accounts)
	if err != nil || len(accounts) == 0 {
		return nil, errors.New(`ACCOUNTS must be a JSON list of {"clientId": …, "clientSecret": …}, or a file with one`) // it holds secrets
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
	localPattern  = regexp.MustCompile(`^(localhost|127\.|\[::1\]|10\.|192\.168\.)`)
	apiPattern    = regexp.MustCompile(`/api/vendor(/.*)?$`)
)

// originOf is BASE_URL as loadtest/lib/settings.js reads it.
func originOf(text string) (string, error) {
	given := strings.TrimSpace(text)
	if !schemePattern.MatchString(given) {
		scheme := "https://"
		if localPattern.MatchString(given) {
			scheme = "http://"
		}
		given = scheme + given
	}

	u, err := url.Parse(given)
	isPlain := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
	if !isPlain {
		return "", errors.New("BASE_URL must be like https://api.example.com, without credentials, query or fragment")
	}
	path := strings.TrimRight(apiPattern.ReplaceAllString(u.Path, ""), "/")
	return u.Scheme + "://" + u.Host + path, nil
}
