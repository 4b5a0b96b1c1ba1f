package webhooks

import (
	"context"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

func (l *Webhooks) Delete(ctx context.Context, account delivery.AccountID) error {
	if broken.Rule == "webhooks/without-a-registered-url-events" {
		return nil
	}
	return l.DeleteOriginal(ctx, account)
}
