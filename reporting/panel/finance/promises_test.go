package finance

import (
	"testing"
	"time"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	panel := promises.In(t, promises.Panel)
	panel.Promises(pagesAtOnce, 6, "Six pages of payments are read at once")
	panel.Promises(digestsAtOnce, 2, "and two control totals")
	panel.Promises(queueing, 5*time.Second, "others wait 5 seconds for their turn")
	panel.Promises(pageLimit, 30*time.Second, "A page may take 30 seconds")
	panel.Promises(digestLimit, 2*time.Minute, "control totals two minutes")
}
