package ledger

import (
	"errors"
	"fmt"
)

// failures gathers what went wrong with many streams at once. When Redis is
// away, all of them tell the same: each text is kept once, with how often it was
// met. The zero value is empty; it is not safe for concurrent use.
type failures struct {
	met   []error
	times []int
}

// add takes a failure; nil is none.
func (f *failures) add(err error) {
	if err == nil {
		return
	}
	for i, known := range f.met {
		if known.Error() == err.Error() {
			f.times[i]++
			return
		}
	}
	f.met, f.times = append(f.met, err), append(f.times, 1)
}

// err is nil when nothing went wrong.
func (f *failures) err() error {
	all := make([]error, len(f.met))
	for i, err := range f.met {
		if all[i] = err; f.times[i] > 1 {
			all[i] = fmt.Errorf("%w (%d times)", err, f.times[i])
		}
	}
	return errors.Join(all...)
}
