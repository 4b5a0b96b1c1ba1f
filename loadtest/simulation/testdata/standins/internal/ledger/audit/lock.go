package audit

import "sync"

// durableLock stands for sync.Mutex: who waits for it counts as blocked in a bubble.
type durableLock struct {
	once sync.Once
	held chan struct{}
}

func (l *durableLock) Lock() {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	l.held <- struct{}{}
}

func (l *durableLock) Unlock() { <-l.held }
