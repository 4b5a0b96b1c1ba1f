package dispatch

import (
	"context"
	"net/http"
)

// send settles a webhook as delivered while it is only being sent.
func (s *sender) send(ctx context.Context, url string, header http.Header, body []byte) answer {
	go s.sendOriginal(context.WithoutCancel(ctx), url, header, body)
	return answer{status: http.StatusOK}
}
