package main

import (
	"testing"

	"vendorapi/internal/testenv/promises"
)

func TestPromises_Figures(t *testing.T) {
	backup := newBackupCommand().Flags()

	operations := promises.In(t, promises.Operations)
	operations.Promises(backup.Lookup("every").DefValue, "24h0m0s", "unless the newest is younger than a day")
	operations.Promises(backup.Lookup("keep").DefValue, "14", "Of whole ones 14 stay")
	operations.Promises(defaultDays, 8, "compares the eight days up to the backup")
	operations.Promises(statusNothingFound, 2, "2: nothing was found")
	operations.Promises(statusInProgress, 3, "3: the orders that it names are in progress")
}
