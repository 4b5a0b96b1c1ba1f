package archive

import "context"

// Store stands for ClickHouse.
var Store func(ctx context.Context, b *Batch) error

func (a *Archive) Insert(ctx context.Context, b *Batch) error { return Store(ctx, b) }
