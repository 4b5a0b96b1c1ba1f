package main

import (
	"net/url"
	"strconv"
	"strings"

	"vendorapi/internal/webhook"
)

const maxWebhookURL = 2048

// checkWebhookURL judges the URL of a receiver by its text: https and a public
// host, or with local also http and this machine. It keeps mistakes out; what a
// name resolves to is judged by the worker's dialer at every connection. The
// error is VALIDATION_FAILED.
func checkWebhookURL(text string, local bool) error {
	if message := webhookURLFault(text, local); message != "" {
		return invalid("url", message)
	}
	return nil
}

func webhookURLFault(text string, local bool) string {
	if len(text) > maxWebhookURL {
		return "must have at most 2048 characters"
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "" || strings.ContainsAny(text, " \t\r\n"):
		return "must be an absolute URL"
	case u.Scheme != "https" && (u.Scheme != "http" || !local):
		return "must begin with https://"
	case u.User != nil:
		return "must not contain credentials"
	case u.Fragment != "" || strings.Contains(text, "#"):
		return "must not have a fragment"
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "must have a port from 1 to 65535"
		}
	}
	if !publicHost(u.Hostname(), local) {
		return "must name a public host"
	}
	return ""
}

// publicHost refuses addresses that lead nowhere public, whatever their
// notation, and names that only mean something inside a network.
func publicHost(host string, local bool) bool {
	name, address, err := webhook.ParseHost(host)
	switch {
	case err != nil:
		return false
	case address.IsValid():
		return webhook.PublicAddress(address) || local && address.Unmap().IsLoopback()
	}
	dot := strings.LastIndexByte(name, '.')
	switch name[dot+1:] {
	case "localhost", "local", "localdomain", "internal", "lan", "home", "corp", "intranet":
		return local
	}
	return dot > 0 || local
}

// decodeWebhook reads {url}.
func (g *gateway) decodeWebhook(x *exchange) (string, error) {
	f := newForm(x.text())
	given := f.text("url")
	if err := f.read(); err != nil {
		return "", err
	}
	f.require("url", given.Set)
	if err := f.err(); err != nil {
		return "", err
	}
	return given.Value, checkWebhookURL(given.Value, g.settings.localReceivers())
}
