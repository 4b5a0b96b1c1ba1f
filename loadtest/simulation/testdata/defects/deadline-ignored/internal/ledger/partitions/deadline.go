package partitions

import "time"

// Deadline lets events be sent for three days instead of one.
func (d *Delivery) Deadline() time.Time { return d.DeadlineOriginal().Add(48 * time.Hour) }
