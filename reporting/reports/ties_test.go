package reports

import (
	"context"
	"fmt"

	"vendorapi/reporting/archive"
)

// ties reads control totals and reports whether all that must tie does. An error
// says that it is not known: something failed, or orders of the period kept
// changing meanwhile.
func ties(ctx context.Context, a *archive.Archive, p Params) (bool, error) {
	w := &verdict{tied: true}
	if _, err := control.Run(ctx, a, p, w, nil); err != nil {
		return false, err
	}
	if w.changing != "" {
		return false, fmt.Errorf("%s kept changing while the control totals were read", w.changing)
	}
	return w.tied, nil
}

// verdict is a sink that only looks at ties.
type verdict struct {
	tied     bool
	changing string // a line
}

func (v *verdict) Begin(*Report, Params) error { return nil }
func (v *verdict) End(Summary) error           { return nil }
func (v *verdict) Abort()                      {}

func (v *verdict) Row(cells []Cell) error {
	switch cells[controlColumn("ties")].Text {
	case "no":
		v.tied = false
	case tiesChanging:
		v.changing = cells[controlColumn("line")].Text
	}
	return nil
}
