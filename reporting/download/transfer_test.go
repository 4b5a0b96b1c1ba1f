package download

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// transferring is a server of bodies of 10 steps over a connection that takes bytes
// only when they are read, and how each transfer ended.
func transferring(t *testing.T) (conn net.Conn, ended chan error) {
	t.Helper()
	ended = make(chan error, 9)
	return testenv.ServePipe(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		tr := newTransfer(w, time.Minute, func(http.Header) {})
		for i := 0; i < 10 && err == nil; i++ {
			_, err = tr.Write(make([]byte, step))
		}
		ended <- errors.Join(err, tr.finish())
	})), ended
}

func TestTransfer_LetsAStalledClientGo(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		conn, ended := transferring(t)
		began := time.Now()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: panel\r\n\r\n")
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// Somebody slow, but not stalled, gets everything; and the connection serves the
// next request however long after.
func TestTransfer_WaitsForASlowClient(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		conn, ended := transferring(t)
		for range 2 {
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: panel\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
			must(t, err)
			n, piece := 0, make([]byte, step)
			for err == nil {
				var got int
				got, err = io.ReadFull(resp.Body, piece)
				n += got
				time.Sleep(55 * time.Second)
			}

			if err := <-ended; n != 10*step || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}

			time.Sleep(10 * time.Minute)
		}
	})
}

func TestResultOf(t *testing.T) {
	t.Parallel()

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for want, c := range map[string]struct {
		client, ctx context.Context
		transfer    transfer
		err         error
	}{
		resultWhole:       {gone, gone, transfer{begun: true}, nil},
		resultStalled:     {gone, gone, transfer{begun: true, err: os.ErrDeadlineExceeded}, os.ErrDeadlineExceeded},
		resultGone:        {t.Context(), t.Context(), transfer{begun: true, err: io.ErrClosedPipe}, io.ErrClosedPipe},
		resultTooLong:     {t.Context(), gone, transfer{}, context.DeadlineExceeded},
		resultCut:         {t.Context(), t.Context(), transfer{begun: true}, delivery.ErrUnavailable},
		resultUnavailable: {t.Context(), t.Context(), transfer{}, fmt.Errorf("ask: %w", delivery.ErrUnavailable)},
		resultFailed:      {t.Context(), t.Context(), transfer{}, io.ErrShortWrite},
	} {
		if got := resultOf(c.client, c.ctx, &c.transfer, c.err); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
