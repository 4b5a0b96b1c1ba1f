package service

import (
	"testing"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	decisions := promises.In(t, promises.Decisions)
	decisions.Promises(maxLogged, 2000, "a line of the log has at most 2,000 bytes of one text")
	decisions.Promises(maxStack, 16<<10, "(16 kB of a panic's stack)")
}
