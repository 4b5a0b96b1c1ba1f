package sender

import (
	"context"
	"net/http"
)

// Send settles a webhook as delivered while it is only being sent.
func (s *Sender) Send(ctx context.Context, request Request) Answer {
	go s.SendOriginal(context.WithoutCancel(ctx), request)
	return Answer{Status: http.StatusOK}
}
