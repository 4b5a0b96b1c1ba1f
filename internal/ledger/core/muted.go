package core

import (
	"strings"

	"vendorapi/internal/delivery"
)

// MutedField is the field of an account that names the events of which it is sent none.
const MutedField = "muted"

func EncodeMuted(events []delivery.EventType) string {
	names := make([]string, len(events))
	for i, event := range events {
		names[i] = string(event)
	}
	return strings.Join(names, " ")
}

func DecodeMuted(text string) (events []delivery.EventType) {
	for _, name := range strings.Fields(text) {
		events = append(events, delivery.EventType(name))
	}
	return events
}
