package outbound

import (
	"net"
	"net/http"
	"time"
)

// ToAgents returns a client for addresses that the operator wrote down, such as those of agents and models. connect bounds
// connecting, and again the TLS handshake. header bounds the wait for the first byte of an answer; 0 means no bound.
//
// Connections are direct. The client follows no redirects, and it ignores the proxy variables of the environment: an agent
// whose answers depend on the server's shell is hard to debug.
func ToAgents(connect, header time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: connect}
	return &http.Client{
		CheckRedirect: NoRedirects,
		Transport: &http.Transport{
			DialContext:           dialer.DialContext,
			TLSHandshakeTimeout:   connect,
			ResponseHeaderTimeout: header,
			ForceAttemptHTTP2:     true,
			// An agent or proxy that compresses delays events to fill its blocks.
			DisableCompression: true,
			// Runs of one agent go to one host, so the limit per host is the limit.
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
		},
	}
}
