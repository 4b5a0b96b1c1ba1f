// Package devclickhouse is the embedded ClickHouse: the real engine from a shared
// library (package libchdb) behind ClickHouse's HTTP interface on loopback, so
// that clickhouse-go, curl and any BI tool talk to it as to a server.
//
//	            +------------------------ front -------------------------+
//	request --> | guard, parse   admit    session per request            |
//	            |   INSERT data  ------>  streamed insert   -> 200       | --> engine
//	            |   SELECT, …    ------>  INTO OUTFILE /dev/fd/N -> pipe | <-- rows
//	            |   DDL, KILL, … ------>  query                          |
//	            +--------------------------------------------------------+
//
// It owns the process's data folder (a lock file says so), the translation
// between HTTP and the library, and what a server would enforce: one statement
// per request, bounded bodies and numbers of queries, cancellation when the
// client goes, exceptions with their codes, an answer to an insert only when
// its rows are stored.
//
// It refuses to be more than that. There are no users but one, whose key changes
// need and reading does not, and file() reads whatever this process can: it is
// for loopback and callers that are trusted with everything. Browsers' requests from other sites are
// turned away for that reason. There are no sessions (each request has one of
// its own), no native protocol, no Replicated or Distributed tables; a server
// or a cluster, reached through CLICKHOUSE_URL, has these. In the Native format
// a DateTime('Zone') reads as DateTime: the moment is right, the zone is the
// engine's (see hello.go). DateTime64 keeps its zone.
//
// The engine can crash with its process and take nothing along: the process is
// this front and nothing else, and whoever starts it starts it again.
package devclickhouse
