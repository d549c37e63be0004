package limit

import (
	"net"
	"net/netip"
	"sync"
)

// ConnectionOptions configures Connections. 0 means no limit.
type ConnectionOptions struct {
	Most      int // open at a time, on all listeners
	OfAddress int // of these, from one address (see Sender)
	// Exempt reports whether OfAddress does not apply to an address, because many clients share it. Nil: to none.
	Exempt func(address string) bool
	// Opened is called for each connection; closed is called when that connection closes. Refused is called for each
	// connection beyond the limit of its address.
	Opened  func() (closed func())
	Refused func()
	// Headers bounds what arrives on connections without a request (see Connection). Nil: no bound.
	Headers *Budget
}

// Connections bounds the connections of a replica. Connections beyond Most are not refused: they wait in the kernel's
// queue until another one closes. Each listener accepts one of them before it waits. A connection beyond OfAddress is
// closed at once.
type Connections struct {
	opt    ConnectionOptions
	places chan struct{} // nil: any number
	mu     sync.Mutex
	from   map[string]int
}

// NewConnections makes the bound.
func NewConnections(o ConnectionOptions) *Connections {
	c := &Connections{opt: o, from: map[string]int{}}
	if o.Most > 0 {
		c.places = make(chan struct{}, o.Most)
	}
	return c
}

// Listener wraps a TCP listener; its connections count.
func (c *Connections) Listener(l net.Listener) net.Listener {
	return &listener{Listener: l, all: c, done: make(chan struct{})}
}

type listener struct {
	net.Listener
	all  *Connections
	once sync.Once
	done chan struct{}
}

func (l *listener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { close(l.done) })
	return err
}

// Accept accepts a connection and then waits for a place. A listener without clients so holds no place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		counted, ok := l.admit(c)
		if !ok {
			_ = c.Close()
			if l.all.opt.Refused != nil {
				l.all.opt.Refused()
			}
			continue
		}
		if l.all.places == nil {
			return counted, nil
		}
		select { // first, so that a connection that came before Close is served if it has a place
		case l.all.places <- struct{}{}:
			counted.placed = true
			return counted, nil
		default:
		}
		select {
		case l.all.places <- struct{}{}:
			counted.placed = true
			return counted, nil
		case <-l.done:
			_ = counted.Close()
			return nil, net.ErrClosed
		}
	}
}

func (l *listener) admit(c net.Conn) (*Connection, bool) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		panic("limit: connection counting needs a TCP listener")
	}
	a, address := l.all, c.RemoteAddr().String()
	from, bounded := Sender(address), l.all.opt.OfAddress > 0 && (l.all.opt.Exempt == nil || !l.all.opt.Exempt(address))
	a.mu.Lock()
	defer a.mu.Unlock()
	if bounded && a.from[from] >= a.opt.OfAddress {
		return nil, false
	}
	a.from[from]++
	closed := func() {}
	if a.opt.Opened != nil {
		closed = a.opt.Opened()
	}
	return &Connection{TCPConn: tcp, from: Holder{Address: from}, headers: a.opt.Headers, left: func(placed bool) {
		a.mu.Lock()
		if a.from[from]--; a.from[from] == 0 {
			delete(a.from, from)
		}
		a.mu.Unlock()
		closed()
		if placed {
			<-a.places
		}
	}}, true
}

// Sender returns the party behind an address with a port. For IPv6 that is the /64 network, because a customer has at
// least 64 bits.
func Sender(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		network, _ := ip.Prefix(64) // 16 bytes are long enough
		return network.String()
	}
	return ip.String()
}
