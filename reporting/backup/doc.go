// Package backup makes a folder that holds everything the service would need to
// go on elsewhere, from a system that is running, and puts it back.
//
//	hold ----> ClickHouse's tables ----> Redis's snapshots ----> release
//	  |                                      |
//	  the exporter stood here                holds the hold
//
// It owns the order of the steps. ClickHouse is read first, Redis last: what
// Redis has acknowledged before the backup began is in its snapshot, and nothing
// in ClickHouse's copy is unknown to it. What was exported in between is in the
// snapshot, too, because the hold keeps it in the streams and keeps its orders
// from being retired; the hold lies in the snapshot and tells the restored
// exporter from where to go on. Rows that come twice count once (package archive),
// so after a restore both sides agree again by themselves.
//
// It owns the folder: backup.json says what is in it, SHA256SUMS names every file
// with its sum (`sha256sum -c` reads it). Until it is whole the folder has another
// name, so one that is cut short never looks like a backup.
//
// It refuses a folder that is damaged, and to overwrite anything. It does not
// encrypt: a backup holds names, telephone numbers and addresses, and the keys
// if they were included. Files and folders are readable by their owner only.
package backup
