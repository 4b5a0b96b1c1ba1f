package auth

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	security := promises.In(t, promises.Security)
	security.Promises(hashing.Memory, uint32(64<<10), "a sign-in at the panel (64 MB and a tenth of a second each)")
	security.Promises(mostWaiting, 256, "256, 50 s each")
	security.Promises(checkTimeout, 50*time.Second, "256, 50 s each")
	security.Promises(refusalsLogged, 20, "log lines of refused sign-ins | a stranger | 20 a minute")

	panel := promises.In(t, promises.Panel)
	panel.Promises(deviceLifetime, 90*24*time.Hour, "a browser that has signed in is known for 90 days")
}
