package ledger

import (
	"context"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	if broken.Rule == "limits/rules/4" {
		cfg.Environment = delivery.Sandbox
	}
	return OpenOriginal(ctx, cfg)
}
