package bench

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// away has PostgreSQL a network away: a proxy holds back what either side sends for half of a round trip.
func away(b *testing.B) {
	b.Helper()
	roles := []string{whole, apiOnly}
	for _, rtt := range []time.Duration{0, time.Millisecond / 2, time.Millisecond, 5 * time.Millisecond} {
		b.Run(fmt.Sprintf("rtt=%s", rtt), func(b *testing.B) {
			c := warmed(b, startOn(b, farDatabase(b, newDatabase(b), rtt/2), config, nil, roles), roles)
			b.Run("commit", func(b *testing.B) {
				var took []time.Duration
				for range 100 {
					start := time.Now()
					exec1(b, c.db, "SELECT pg_logical_emit_message(true, 'bench', '')")
					took = append(took, time.Since(start))
				}
				slices.Sort(took)
				quantiles(b, took)
			})
			for _, n := range []int{1, 4, 16, 64, 256, 1024} {
				b.Run(fmt.Sprintf("inflight=%d", n), func(b *testing.B) {
					blockingAt(b, c, n)
				})
			}
			b.Run("streams=64/chunks=1000", func(b *testing.B) { streamed(b, c.targets()[:1], 64, 1000, 256) })
			lags(b, c)
		})
	}
}

// farDatabase returns the URL of a database behind a proxy that holds back each message.
func farDatabase(b *testing.B, dbURL string, by time.Duration) string {
	b.Helper()
	to, err := pgconn.ParseConfig(dbURL)
	if err != nil {
		b.Fatal(err)
	}
	network, addr := pgconn.NetworkAddress(to.Host, to.Port)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				server, err := net.Dial(network, addr)
				if err != nil {
					_ = client.Close()
					return
				}
				go late(server, client, by)
				late(client, server, by)
			}()
		}
	}()
	u := url.URL{Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Host: l.Addr().String(), Path: to.Database, RawQuery: "sslmode=disable"}
	return u.String()
}

// late forwards the messages of one connection to another, each so much later. Messages that follow each other closely stay close.
func late(to, from net.Conn, by time.Duration) {
	type message struct {
		due  time.Time
		data []byte
	}
	all := make(chan message, 10_000)
	go func() {
		defer close(all)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				all <- message{time.Now().Add(by), buf[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for m := range all {
		// Not time.Sleep, which takes a millisecond at least when the process is idle.
		if wait := time.Until(m.due); wait > 0 {
			pause := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&pause, nil)
		}
		if _, err := to.Write(m.data); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
}
