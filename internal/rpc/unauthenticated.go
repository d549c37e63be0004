package rpc

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
)

// Bounds of requests whose credential is not accepted yet: of those that share a connection, in total and of one address, and
// how long a client may take to read such an answer.
const (
	maxArrivals          = 4000
	maxArrivalsOfAddress = 1000
	arrivedWithin        = 30 * time.Second
)

// busyPause is when a client may repeat a request that Headers refused.
const busyPause = 2 * time.Second

// bounded bounds what requests hold before their credential is accepted. limit.Accept lifts the bounds.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shared := r.ProtoMajor > 1
		leave, ok := s.arrivals.Take(r.RemoteAddr, headerSize(r), shared)
		if !ok {
			if s.opt.Refused != nil {
				s.opt.Refused()
			}
			// Without content, the answer does not wait for its client.
			w.Header().Set("Retry-After", strconv.Itoa(int(busyPause.Seconds())))
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer := http.NewResponseController(w)
		_ = answer.SetWriteDeadline(time.Now().Add(arrivedWithin))
		if leave == nil {
			next.ServeHTTP(w, r)
			return
		}
		defer leave()
		accepted := false
		next.ServeHTTP(w, r.WithContext(limit.OnAccept(r.Context(), func() {
			accepted = true
			leave()
			_ = answer.SetWriteDeadline(time.Time{})
		})))
		if shared && !accepted {
			// The answer waits here for its client, instead of after the handler.
			_ = answer.Flush()
		}
	})
}

// headerSize returns the bytes of a request's headers.
func headerSize(r *http.Request) int {
	n := len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// connected gives the requests of a connection its context.
func connected(ctx context.Context, c net.Conn) context.Context {
	if counted := limit.ConnectionBelow(c); counted != nil {
		return limit.WithConnection(ctx, counted)
	}
	return ctx
}

// follow tells a connection when it has requests.
func follow(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive:
		limit.ConnectionBelow(c).Begin()
	case http.StateIdle:
		limit.ConnectionBelow(c).End()
	default:
	}
}
