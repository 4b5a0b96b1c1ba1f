package libchdb

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"
)

// progressStep is the share of the whole that is worth another line.
const progressStep = 10 // percent

// showProgress tells how much of the package has been unpacked, which npm does
// while it downloads, until the returned function is called.
func (i *installer) showProgress(dir string) (stop func()) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for told := int64(0); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			size := sizeOf(dir)
			if percent := 100 * size / max(i.platform.unpack, 1); percent >= told+progressStep {
				told = percent
				fmt.Fprintf(i.out, "libchdb: %d of %d MB\n", size/1e6, i.platform.unpack/1e6)
			}
		}
	})
	return func() {
		close(done)
		ended.Wait()
	}
}

// sizeOf adds up the files below dir. Files come and go while npm works, so
// errors only make the figure smaller.
func sizeOf(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}
