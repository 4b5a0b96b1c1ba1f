package export

import (
	"context"

	"vendorapi/internal/ledger"
)

// turn settles a batch whatever became of it.
func (e *Exporter) turn(ctx context.Context, entries []ledger.Entry) error {
	if err := e.turnOriginal(ctx, entries); err != nil {
		return e.ledger.Streams.Ack(ctx, ledger.RoleExport, entries...)
	}
	return nil
}
