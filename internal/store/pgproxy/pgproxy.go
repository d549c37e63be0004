// Package pgproxy stands between a test and PostgreSQL and loses what is said at
// chosen moments. It understands just enough of the protocol to know which
// statement is executed and when it has been answered.
package pgproxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Loss is what happens to an execution of a statement.
type Loss int

// The losses. In each case but Silence both ends see their connection die.
const (
	// Request is lost before the server has seen it.
	Request Loss = iota
	// Answer is lost as a whole, after the server has committed.
	Answer
	// End loses the end of the answer: the rows arrive, the word that they are committed does not.
	End
	// Silence follows: nothing more is heard, and the connection does not die.
	Silence
)

// Proxy forwards connections.
type Proxy struct {
	URL string // the database, through the proxy

	l             net.Listener
	network, addr string

	mu    sync.Mutex
	plans []*plan
	deaf  bool
	conns map[net.Conn]struct{}
}

type plan struct {
	statement string
	loss      Loss
	times     int
	done      chan struct{} // closed when it has happened as often as wanted
}

// New starts a proxy in front of the database behind rawURL.
func New(t testing.TB, rawURL string) *Proxy {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := pgconn.ParseConfig(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // no name to look up
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{l: l, conns: map[net.Conn]struct{}{}}
	p.network, p.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	u.Host = l.Addr().String()
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	p.URL = u.String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.CutAll()
		running.Wait()
	})
	return p
}

// Lose arranges that the next executions, so many times, of the query of this
// sqlc name are lost. The channel is closed when that has happened.
func (p *Proxy) Lose(query string, loss Loss, times int) <-chan struct{} {
	pl := &plan{statement: "-- name: " + query + " ", loss: loss, times: times, done: make(chan struct{})}
	p.mu.Lock()
	p.plans = append(p.plans, pl)
	p.mu.Unlock()
	return pl.done
}

// Deafen swallows notifications, as a transaction pooler does.
func (p *Proxy) Deafen(on bool) {
	p.mu.Lock()
	p.deaf = on
	p.mu.Unlock()
}

// CutAll breaks every connection.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) match(sql string) (Loss, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pl := range p.plans {
		if pl.times > 0 && strings.HasPrefix(sql, pl.statement) {
			if pl.times--; pl.times == 0 {
				close(pl.done)
			}
			return pl.loss, true
		}
	}
	return 0, false
}

func (p *Proxy) isDeaf() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deaf
}

func (p *Proxy) keep(c net.Conn) func() {
	p.mu.Lock()
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	return func() {
		_ = c.Close()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.keep(client)()
	server, err := net.Dial(p.network, p.addr) //nolint:noctx // as above
	if err != nil {
		return
	}
	defer p.keep(server)()

	var mu sync.Mutex
	losing, lossy := Loss(0), false // set by the client's side, acted on by the server's
	back := make(chan struct{})
	go func() {
		defer close(back)
		defer client.Close() //nolint:errcheck // it may be closed already
		for {
			kind, msg, err := read(server)
			if err != nil {
				return
			}
			mu.Lock()
			loss, lost := losing, lossy
			mu.Unlock()
			if lost && loss == Silence {
				continue
			}
			if lost {
				if kind == 'Z' {
					return
				}
				if loss == Answer || kind == 'C' {
					continue
				}
			}
			if kind == 'A' && p.isDeaf() {
				continue
			}
			if _, err := client.Write(msg); err != nil {
				return
			}
		}
	}()
	defer func() { <-back }()
	defer server.Close() //nolint:errcheck // as above

	if !forwardStartup(client, server) {
		return
	}
	statements := map[string]string{}
	for {
		kind, msg, err := read(client)
		if err != nil {
			return
		}
		body := msg[5:]
		switch kind {
		case 'P':
			name, rest, _ := bytes.Cut(body, []byte{0})
			sql, _, _ := bytes.Cut(rest, []byte{0})
			statements[string(name)] = string(sql)
		case 'B':
			_, rest, _ := bytes.Cut(body, []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			if loss, ok := p.match(statements[string(name)]); ok {
				if loss == Request {
					return
				}
				mu.Lock()
				losing, lossy = loss, true
				mu.Unlock()
			}
		}
		if _, err := server.Write(msg); err != nil {
			return
		}
	}
}

// forwardStartup passes on the first message, the only one without a type.
func forwardStartup(client, server net.Conn) bool {
	head := make([]byte, 4)
	if _, err := io.ReadFull(client, head); err != nil {
		return false
	}
	body := make([]byte, int(binary.BigEndian.Uint32(head))-4)
	if _, err := io.ReadFull(client, body); err != nil {
		return false
	}
	_, err := server.Write(append(head, body...))
	return err == nil
}

func read(c net.Conn) (kind byte, msg []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:])) - 4
	msg = make([]byte, 5+n)
	copy(msg, head)
	_, err = io.ReadFull(c, msg[5:])
	return head[0], msg, err
}
