package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	chproto "github.com/ClickHouse/ch-go/proto"
	chcolumn "github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"vendorapi/internal/devclickhouse/libchdb"
)

// helloQuery is the first thing that clickhouse-go asks of a server.
const helloQuery = "SELECT displayName(), version(), revision(), timezone()"

type identity struct {
	name, version, timezone string
}

func readIdentity(conn *libchdb.Conn) (identity, error) {
	result, err := conn.Query("SELECT 'embedded', version(), timezone()", "TSV", nil)
	if err != nil {
		return identity{}, fmt.Errorf("ask the engine who it is: %w", err)
	}
	fields := strings.Split(strings.TrimRight(string(result.Data), "\n"), "\t")
	if len(fields) != 3 {
		return identity{}, fmt.Errorf("the engine says of itself: %q", result.Data)
	}
	return identity{name: fields[0], version: fields[1], timezone: fields[2]}, nil
}

func isHello(q *request, text string) bool {
	return q.wantRevision != "" && q.format == "Native" && strings.TrimSpace(text) == helloQuery
}

// answerHello answers in the engine's place.
//
// clickhouse-go reads every block in the layout of a protocol revision: that of
// its own newest one until the hello, afterwards the one that the hello says.
// The library writes revision 0 and has no setting for another. So the hello is
// answered in the client's revision and says revision 0, after which the
// library's blocks are what the client expects, byte for byte. Inserts are at
// revision 0 in either case.
func (f *front) answerHello(w http.ResponseWriter, q *request) error {
	revision, err := strconv.ParseUint(q.wantRevision, 10, 32)
	if err != nil {
		return syntaxError("client_protocol_version is %q", q.wantRevision)
	}
	block := proto.NewBlock()
	for _, column := range []struct{ name, kind string }{
		{"displayName()", "String"}, {"version()", "String"}, {"revision()", "UInt32"}, {"timezone()", "String"},
	} {
		if err := block.AddColumn(column.name, chcolumn.Type(column.kind)); err != nil {
			return fmt.Errorf("hello: %w", err)
		}
	}
	if err := block.Append(f.identity.name, f.identity.version, uint32(0), f.identity.timezone); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	var buffer chproto.Buffer
	if err := block.Encode(&buffer, revision); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	a := newAnswer(w, q, "Native")
	_ = a.write(buffer.Buf) // it is held back
	_ = a.flush()           // a client that has gone needs none
	return nil
}
