// Package pgproxytest is a proxy between a test and PostgreSQL that loses messages at chosen
// moments. It understands just enough of the protocol to know which statement is executed and when
// PostgreSQL has answered it.
package pgproxytest

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// Loss is what happens to an execution of a statement.
type Loss int

// The losses. In each case except Silence both ends see their connection die.
const (
	// Request loses the statement before the server has seen it.
	Request Loss = iota
	// Answer loses the whole answer, after the server has committed.
	Answer
	// End loses the end of the answer: the rows arrive, but not the confirmation of the commit.
	End
	// Silence loses everything from then on, but the connection stays open.
	Silence
)

// Proxy forwards connections.
type Proxy struct {
	URL string // the database, through the proxy

	l net.Listener

	mu            sync.Mutex
	network, addr string

	plans   []*plan
	answers map[string]*pgproto3.ErrorResponse // instead of the server's answer, by the start of the statement
	record  func(sql string)                   // called for each execution; nil: no record
	deaf    bool
	refuse  bool
	lives   int           // executions until Die acts; 0: never
	dead    chan struct{} // closed when Die acts
	delay   time.Duration
	stalled chan struct{} // closed when the stall is over; nil without a stall
	conns   map[*conn]struct{}
	closed  bool
}

// conn is a connection of the client with its connection to the server.
type conn struct {
	client, server net.Conn
	half           atomic.Bool // only one side knows that the other has closed
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
	done      chan struct{} // closed after the requested number of losses
}

func named(query string) string { return "-- name: " + query }

// is reports whether a statement has the name at its beginning.
func is(sql, name string) bool {
	rest, ok := strings.CutPrefix(sql, name)
	return ok && strings.HasPrefix(rest, " ")
}

// New starts a proxy in front of the database behind rawURL.
func New(t testing.TB, rawURL string) *Proxy {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{l: l, conns: map[*conn]struct{}{}, answers: map[string]*pgproto3.ErrorResponse{}}
	p.Lead(rawURL)
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

// Lose loses the next executions, times in number, of the query with this sqlc name. It closes the
// channel after the last one.
func (p *Proxy) Lose(query string, loss Loss, times int) <-chan struct{} {
	pl := &plan{statement: named(query), loss: loss, times: times, done: make(chan struct{})}
	p.mu.Lock()
	p.plans = append(p.plans, pl)
	p.mu.Unlock()
	return pl.done
}

// Record records executed statements in their order until stop is called. There can be one record
// at a time.
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
	if p.lives == 0 {
		return
	}
	if p.lives--; p.lives == 0 {
		p.refuse = true
		close(p.dead)
		for c := range p.conns {
			c.close()
		}
	}
}

// Deafen swallows notifications, as a transaction pooler does.
func (p *Proxy) Deafen(on bool) {
	p.mu.Lock()
	p.deaf = on
	p.mu.Unlock()
}

// Fail answers the query with this sqlc name with an error until stop is called. The server does
// not see the query.
func (p *Proxy) Fail(query, sqlstate, text string) (stop func()) {
	p.mu.Lock()
	p.answers[named(query)] = &pgproto3.ErrorResponse{
		Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: sqlstate, Message: text,
	}
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		delete(p.answers, named(query))
		p.mu.Unlock()
	}
}

// Lead leads new connections to the server of another URL.
func (p *Proxy) Lead(rawURL string) {
	cfg, err := pgconn.ParseConfig(rawURL)
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
}

// CutAll breaks every connection.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// Refuse closes new connections at once. It does not affect existing ones.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refuse = on
	p.mu.Unlock()
}

// Die closes all of the client's connections for good at its nth execution from now, as if the
// process was killed. It then closes the channel.
func (p *Proxy) Die(n int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lives, p.dead = n, make(chan struct{})
	return p.dead
}

// Delay delays each of the server's messages by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	p.delay = d
	p.mu.Unlock()
}

// Stall holds all messages back, like a network that loses packets. Neither side notices. The
// messages arrive when the stall is over.
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

// HalfClose closes one side of every connection. The other side does not notice: its connection
// stays open and silent.
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
		if pl.times > 0 && is(sql, pl.statement) {
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

// answer returns the answer to a statement instead of the server's, or nil.
func (p *Proxy) answer(sql string) *pgproto3.ErrorResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	for beginning, answer := range p.answers {
		if is(sql, beginning) {
			return answer
		}
	}
	return nil
}

// pass blocks until a message may be forwarded.
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

// connect opens the connection to the server, unless connections are refused, and records both so
// that they can be closed.
func (p *Proxy) connect(client net.Conn) (c *conn, forget func(), ok bool) {
	c = &conn{client: client}
	p.mu.Lock()
	ok = !p.refuse && !p.closed
	network, addr := p.network, p.addr
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
	server, err := net.Dial(network, addr)
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
	backend, frontend := pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server)

	var mu sync.Mutex
	losing, lossy := Loss(0), false     // set by the client's side, acted on by the server's
	var instead *pgproto3.ErrorResponse // of the server's next error
	back := make(chan struct{})
	go func() {
		defer close(back)
		defer func() {
			if !c.half.Load() {
				_ = client.Close()
			}
		}()
		for {
			msg, err := frontend.Receive()
			if err != nil {
				return
			}
			mu.Lock()
			loss, lost := losing, lossy
			if _, failed := msg.(*pgproto3.ErrorResponse); failed && instead != nil {
				msg, instead = instead, nil
			}
			mu.Unlock()
			if lost && loss == Silence || c.half.Load() {
				continue
			}
			switch msg.(type) {
			case *pgproto3.ReadyForQuery:
				if lost {
					return
				}
			case *pgproto3.CommandComplete:
				if lost {
					mu.Lock()
					losing = Answer // also what follows in the same round trip
					mu.Unlock()
					continue
				}
			case *pgproto3.NotificationResponse:
				if p.isDeaf() {
					continue
				}
			// The type of the client's answer depends on the question, so the backend must know it.
			case *pgproto3.AuthenticationSASL:
				_ = backend.SetAuthType(pgproto3.AuthTypeSASL)
			case *pgproto3.AuthenticationSASLContinue:
				_ = backend.SetAuthType(pgproto3.AuthTypeSASLContinue)
			}
			if lost && loss == Answer {
				continue
			}
			p.pass(true)
			if send(client, msg) != nil {
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

	if first, err := backend.ReceiveStartupMessage(); err != nil || send(server, first) != nil {
		return
	}
	statements := map[string]string{}
	for {
		msg, err := backend.Receive()
		if err != nil {
			return
		}
		p.pass(false)
		if c.half.Load() {
			continue // drop even the closing message
		}
		switch msg := msg.(type) {
		case *pgproto3.Parse:
			statements[msg.Name] = msg.Query
		case *pgproto3.Bind:
			sql := statements[msg.PreparedStatement]
			p.note(sql)
			if answer := p.answer(sql); answer != nil {
				mu.Lock()
				instead = answer
				mu.Unlock()
				msg.PreparedStatement = unknown
				break
			}
			if loss, ok := p.match(sql); ok {
				if loss == Request {
					return
				}
				mu.Lock()
				losing, lossy = loss, true
				mu.Unlock()
			}
		}
		if send(server, msg) != nil {
			return
		}
	}
}

// unknown is a prepared statement that no client has: the server fails in the place of a statement that it should not see, and
// ends the transaction as it would for that one.
const unknown = "pgproxytest: no such statement"

// send writes a message at once. Unlike a Backend's Send, both directions of a connection may call
// it.
func send(to net.Conn, msg pgproto3.Message) error {
	b, err := msg.Encode(nil)
	if err == nil {
		_, err = to.Write(b)
	}
	return err
}
