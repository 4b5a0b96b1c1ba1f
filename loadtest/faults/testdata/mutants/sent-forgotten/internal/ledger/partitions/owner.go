package partitions

import "context"

// Take goes on behind what is decided, though the last owner may have been sending something before.
func (l *Ownership) Take(ctx context.Context, partition int, seen Stored, worker string) (*Owned, error) {
	o, err := l.TakeOriginal(ctx, partition, seen, worker)
	if err == nil {
		o.From, o.ReadFrom = o.Token.Events, o.Read.Events
	}
	return o, err
}
