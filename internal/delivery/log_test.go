package delivery

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// Without LogValue a JSON log would hold arrays of numbers, which nobody finds an
// order by.
func TestLogValue_IsReadableInEveryFormat(t *testing.T) {
	t.Parallel()
	account, fleet := NewAccountID(), NewFleetID()
	order := OrderID(account)
	for _, handler := range []func(*bytes.Buffer) slog.Handler{
		func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		slog.New(handler(&b)).Info("line", "account", account, "fleet", fleet, "order", order, "status", Delivered)
		for _, want := range []string{account.String(), fleet.String(), order.String(), "Delivered"} {
			check(t, strings.Contains(b.String(), want), "%s is missing in %s", want, &b)
		}
	}
}
