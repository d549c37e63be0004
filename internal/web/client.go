package web

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// ToAgents returns a client for addresses that the operator wrote down, such as those of agents and models. connect bounds
// connecting, and again the TLS handshake. header bounds the wait for the first byte of an answer; 0 means no bound. tell
// receives the class of each request; it may be nil.
//
// Connections are direct. The client follows no redirects, and it ignores the proxy variables of the environment: an agent
// whose answers depend on the server's shell is hard to debug.
func ToAgents(connect, header time.Duration, tell Observer) *http.Client {
	c := &http.Client{
		CheckRedirect: NoRedirects,
		Transport: tracing.Transport(&http.Transport{
			DialContext:           dialer(connect).DialContext,
			TLSHandshakeTimeout:   connect,
			ResponseHeaderTimeout: header,
			ForceAttemptHTTP2:     true,
			// An agent or proxy that compresses delays events to fill its blocks.
			DisableCompression: true,
			// Runs of one agent go to one host, so the limit per host is the limit.
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
		}),
	}
	if tell != nil {
		c.Transport = &observed{c.Transport, tell}
	}
	return c
}

// Dial returns the function that connects to addresses that the operator wrote down, for clients that do not speak HTTP/1.
func Dial(connect time.Duration) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return dialer(connect).DialContext(ctx, "tcp", address)
	}
}

func dialer(connect time.Duration) *net.Dialer { return &net.Dialer{Timeout: connect} }
