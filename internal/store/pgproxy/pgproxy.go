// Package pgproxy stands between a test and PostgreSQL and loses what is said at
// chosen moments. It understands just enough of the protocol to know which
// statement is executed and when it has been answered.
package pgproxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

	mu      sync.Mutex
	plans   []*plan
	answers map[string][]byte // instead of the server's, by the beginning of the statement
	record  func(sql string)  // hears of executions; nil: nobody does
	deaf    bool
	refuse  bool
	delay   time.Duration
	stalled chan struct{} // closed when the stall is over; nil while there is none
	conns   map[*conn]struct{}
	closed  bool
}

// conn is a connection of the client, and the one to the server that it leads to.
type conn struct {
	client, server net.Conn
	half           atomic.Bool // one side was told that the other has left, and only that side
}

func (c *conn) close() {
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}

type plan struct {
	statement string
	loss      Loss
	times     int
	done      chan struct{} // closed when it has happened as often as wanted
}

func named(query string) string { return "-- name: " + query + " " }

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
	p := &Proxy{l: l, conns: map[*conn]struct{}{}, answers: map[string][]byte{}}
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
		p.Stall(false)
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.CutAll()
		running.Wait()
	})
	return p
}

// Lose arranges that the next executions, so many times, of the query of this
// sqlc name are lost. The channel is closed when that has happened.
func (p *Proxy) Lose(query string, loss Loss, times int) <-chan struct{} {
	pl := &plan{statement: named(query), loss: loss, times: times, done: make(chan struct{})}
	p.mu.Lock()
	p.plans = append(p.plans, pl)
	p.mu.Unlock()
	return pl.done
}

// Record notes each statement that is executed, in the order in which they pass, until the function that it returns is
// called. There is one record at a time.
func (p *Proxy) Record() (stop func() []string) {
	var all []string
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = func(sql string) { all = append(all, sql) }
	return func() []string {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.record = nil
		return all
	}
}

func (p *Proxy) note(sql string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.record != nil {
		p.record(sql)
	}
}

// Deafen swallows notifications, as a transaction pooler does.
func (p *Proxy) Deafen(on bool) {
	p.mu.Lock()
	p.deaf = on
	p.mu.Unlock()
}

// Fail answers the query of this sqlc name with an error, which the server never hears of, until the function that it
// returns is called.
func (p *Proxy) Fail(query, sqlstate, text string) (stop func()) {
	msg := fmt.Appendf(nil, "SERROR\x00VERROR\x00C%s\x00M%s\x00\x00", sqlstate, text)
	head := append([]byte{'E'}, binary.BigEndian.AppendUint32(nil, uint32(len(msg)+4))...)
	ready := []byte{'Z', 0, 0, 0, 5, 'I'}
	p.mu.Lock()
	p.answers[named(query)] = slices.Concat(head, msg, ready)
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		delete(p.answers, named(query))
		p.mu.Unlock()
	}
}

// CutAll breaks every connection.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// Refuse closes connections as soon as they are made. Those that stand are left alone.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refuse = on
	p.mu.Unlock()
}

// Delay makes each of the server's messages late by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	p.delay = d
	p.mu.Unlock()
}

// Stall holds everything back, as a network does that loses its packets: nobody is told, and what was sent meanwhile
// arrives when it is over.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !on && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// Side is an end of a connection.
type Side int

// The sides.
const (
	Client Side = iota
	Server
)

// HalfClose tells one side of every connection that the other has left. The other side is told nothing: its connection
// stands, and is silent.
func (p *Proxy) HalfClose(told Side) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.server == nil {
			continue
		}
		c.half.Store(true)
		end := c.client
		if told == Server {
			end = c.server
		}
		_ = end.(interface{ CloseWrite() error }).CloseWrite()
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

// answer is what the statement is answered with instead of by the server, or nil.
func (p *Proxy) answer(sql string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for beginning, answer := range p.answers {
		if strings.HasPrefix(sql, beginning) {
			return answer
		}
	}
	return nil
}

// pass waits until a message may go on.
func (p *Proxy) pass(late bool) {
	p.mu.Lock()
	stalled, delay := p.stalled, p.delay
	p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
	if late && delay > 0 {
		time.Sleep(delay)
	}
}

// connect makes the other half of a connection, unless none is to be made, and notes both so that they can be broken.
func (p *Proxy) connect(client net.Conn) (c *conn, forget func(), ok bool) {
	c = &conn{client: client}
	p.mu.Lock()
	ok = !p.refuse && !p.closed
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	forget = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		c.close()
	}
	if !ok {
		return c, forget, false
	}
	server, err := net.Dial(p.network, p.addr) //nolint:noctx // no name to look up
	if err != nil {
		return c, forget, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.server = server
	if p.closed {
		c.close()
	}
	return c, forget, true
}

func (p *Proxy) serve(accepted net.Conn) {
	c, forget, ok := p.connect(accepted)
	defer forget()
	if !ok {
		return
	}
	client, server := c.client, c.server

	var mu sync.Mutex
	losing, lossy := Loss(0), false // set by the client's side, acted on by the server's
	back := make(chan struct{})
	go func() {
		defer close(back)
		defer func() {
			if !c.half.Load() {
				_ = client.Close()
			}
		}()
		for {
			kind, msg, err := read(server)
			if err != nil {
				return
			}
			mu.Lock()
			loss, lost := losing, lossy
			mu.Unlock()
			if lost && loss == Silence || c.half.Load() {
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
			p.pass(true)
			if _, err := client.Write(msg); err != nil {
				return
			}
		}
	}()
	defer func() {
		if !c.half.Load() {
			_ = server.Close()
		}
		<-back
	}()

	if !forwardStartup(client, server) {
		return
	}
	statements := map[string]string{}
	var instead []byte // of what the server would answer
	for {
		kind, msg, err := read(client)
		if err != nil {
			return
		}
		p.pass(false)
		if c.half.Load() {
			continue // not even a farewell gets through
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
			p.note(statements[string(name)])
			if instead = p.answer(statements[string(name)]); instead != nil {
				break
			}
			if loss, ok := p.match(statements[string(name)]); ok {
				if loss == Request {
					return
				}
				mu.Lock()
				losing, lossy = loss, true
				mu.Unlock()
			}
		}
		switch {
		case instead == nil:
			_, err = server.Write(msg)
		case kind == 'S':
			_, err = client.Write(instead)
			instead = nil
		}
		if err != nil {
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
