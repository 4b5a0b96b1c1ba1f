package export

import (
	"context"
	"errors"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
)

// export acknowledges before ClickHouse has the rows.
func (e *Exporter) export(ctx context.Context, entries []partitions.Entry) error {
	acknowledged := e.ledger.Streams.Ack(ctx, ledger.RoleExport, entries...)
	return errors.Join(e.exportOriginal(ctx, entries), acknowledged)
}
