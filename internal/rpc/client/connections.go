package client

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxCalls is how many calls share a connection: servers should allow as many (RFC 9113, section 6.5.2), and more would
	// wait unseen.
	maxCalls = 100
	// maxUnused is how long a connection without calls stays open, as over HTTP.
	maxUnused = 90 * time.Second
	// pingInterval is how long a connection with calls may be silent before a ping. Servers close a connection that pings more
	// often than every 5 minutes, unless they are configured otherwise. Streams and calls have shorter limits of their own.
	pingInterval = 6 * time.Minute
	// maxUnacked is how long sent bytes may stay without an acknowledgment. Then the connection is dead.
	maxUnacked = 20 * time.Second
	maxBackoff = 5 * time.Second // between attempts to connect
)

// Connections are those to an agent over gRPC, by URL. A card may change the URL while calls use the old one.
type Connections struct {
	Connect time.Duration     // bounds an attempt to connect
	Agent   string            // User-Agent
	Options []grpc.DialOption // more

	mu   sync.Mutex
	open map[string][]*connection
}

// connection connects when it is needed.
type connection struct {
	conn  *grpc.ClientConn
	calls int
	close *time.Timer // while there are no calls
}

// take returns a connection for one call. The caller calls release once.
func (c *Connections) take(address string) (conn *grpc.ClientConn, release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var of *connection
	for _, known := range c.open[address] {
		if known.calls < maxCalls {
			of = known
			break
		}
	}
	if of == nil {
		if conn, err = c.dial(address); err != nil {
			return nil, nil, err
		}
		of = &connection{conn: conn}
		of.close = time.AfterFunc(maxUnused, func() { c.drop(address, of) })
		if c.open == nil {
			c.open = map[string][]*connection{}
		}
		c.open[address] = append(c.open[address], of)
	}
	of.calls++
	of.close.Stop()
	return of.conn, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if of.calls--; of.calls == 0 && c.open != nil {
			of.close.Reset(maxUnused)
		}
	}), nil
}

// drop closes a connection that has no calls.
func (c *Connections) drop(address string, of *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.calls > 0 || c.open == nil { // one has just begun, or Close has closed all
		return
	}
	_ = of.conn.Close()
	c.open[address] = slices.DeleteFunc(c.open[address], func(other *connection) bool { return other == of })
	if len(c.open[address]) == 0 {
		delete(c.open, address)
	}
}

// Close closes the connections. Calls under way fail.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.open {
		for _, of := range all {
			of.close.Stop()
			_ = of.conn.Close()
		}
	}
	c.open = nil
}

// dial makes a connection to a URL: http without TLS, https with it. It trusts the certificates of the system, and nothing that an
// agent says changes how it is called.
func (c *Connections) dial(address string) (*grpc.ClientConn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	secured := insecure.NewCredentials()
	if u.Scheme == "https" {
		secured = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	retries := backoff.DefaultConfig
	retries.MaxDelay = maxBackoff
	conn, err := grpc.NewClient("passthrough:///"+hostPort(u), append([]grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithStatsHandler(observer{}),
		grpc.WithUserAgent(c.Agent),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retries, MinConnectTimeout: c.Connect}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: maxUnacked}),
	}, c.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the agent: %w", err)
	}
	return conn, nil
}
