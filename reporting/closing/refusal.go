package closing

import (
	"errors"
	"fmt"
	"strings"
)

// ErrRefused matches every *Refusal in errors.Is.
var ErrRefused = errors.New("refused")

// Refusal says why the state of the books does not allow a decision. Nothing was done.
type Refusal struct{ Reasons []string }

// Error lists the reasons.
func (r *Refusal) Error() string { return strings.Join(r.Reasons, "; ") }

// Is reports whether target is ErrRefused.
func (r *Refusal) Is(target error) bool { return target == ErrRefused }

func refuse(form string, args ...any) error {
	return &Refusal{Reasons: []string{fmt.Sprintf(form, args...)}}
}

// IsRefusal reports whether an error says that nothing was done, because the state of the books does
// not allow it, or has changed.
func IsRefusal(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrChanged) || errors.Is(err, ErrTampered) || errors.Is(err, ErrBehind)
}
