// Package download answers GET /reports/{name}.{csv|xlsx|json} (design
// section 8) with a report, straight out of ClickHouse.
//
// It owns what lies between a report and a client: which request means which
// report, who waits and who is refused when many come at once, and that nobody
// takes half a report for a whole one. Up to 256 kB are held back until the
// report has either ended or gone beyond them, so most failures are still a
// status and an envelope; a later one cuts the connection in the middle of the
// body, which every client reports as an error. A client that goes away takes
// its query with it; one that takes nothing is let go after a while. However
// long a report is, a download needs the same memory.
//
// It refuses to know what is in a report (package reports) and who may read it
// (package access).
package download
