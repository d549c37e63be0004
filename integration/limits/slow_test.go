package limits

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// laggard is a client that sends a little, again and again.
type laggard struct {
	name string
	dial func() (net.Conn, error)
	// begin sends the first bytes, and more some after them.
	begin, more func(net.Conn) error
	// told is a pattern of what the server says, if it says something before it closes the connection.
	told  string
	heard chan string
	tries int
}

// hear reads what the server says, and reports it when the connection or the answer ends.
func (l *laggard) hear(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	f := http2.NewFramer(c, in)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if begin, err := in.Peek(len("HTTP/1.1")); err != nil || string(begin) == "HTTP/1.1" {
		said, _ := io.ReadAll(in)
		l.heard <- string(said)
		return
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			l.heard <- ""
			return
		}
		if answer, ok := frame.(*http2.MetaHeadersFrame); ok {
			l.heard <- fmt.Sprint(answer.Fields)
			return
		}
	}
}

// overHTTP1 are laggards with a head that does not end, and with bodies that do not end, for doors with and without a credential.
func overHTTP1(address string) (all []*laggard) {
	dial := func() (net.Conn, error) { return net.Dial("tcp", address) }
	const head = "HTTP/1.1\r\nHost: localhost\r\n"
	all = append(all, &laggard{name: "a head without end", dial: dial, begin: write("POST / " + head), more: write("X-Slow: y\r\n")})
	for _, path := range []string{
		"/", "/message:send", "/v1/message:send", "/run/v1/events", "/worker/v1/claims", "/resume/" + strings.Repeat("A", 60),
		"/notifications/" + strings.Repeat("A", 60), "/nothing", "/agents",
	} {
		begin := write("POST " + path + " " + head + "Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n")
		all = append(all, &laggard{name: "a body without end at " + path, dial: dial, begin: begin, more: write(" "), told: "^HTTP/1.1 4"})
	}
	return all
}

// overHTTP2 are laggards of a call or a request with these headers.
func overHTTP2(dial func() (net.Conn, error), told string, headers []byte) []*laggard {
	nothing := write("")
	begun := func(sent func(*http2.Framer) error) func(net.Conn) error {
		return func(c net.Conn) error {
			f, err := preface(c)
			return errors.Join(err, sent(f))
		}
	}
	on := func(sent func(*http2.Framer) error) func(net.Conn) error {
		return func(c net.Conn) error { return sent(http2.NewFramer(c, c)) }
	}
	return []*laggard{
		{name: "no connection", dial: dial, begin: write(http2.ClientPreface[:10]), more: nothing},
		{name: "no request", dial: dial, begin: begun(func(*http2.Framer) error { return nil }), more: nothing},
		{
			name: "a head without end", dial: dial,
			begin: begun(func(f *http2.Framer) error {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers})
			}),
			// A field that is never indexed, of one letter.
			more: on(func(f *http2.Framer) error { return f.WriteContinuation(1, false, []byte{0x10, 1, 'x', 1, 'y'}) }),
		},
		{
			name: "a body without end", dial: dial, told: told,
			begin: begun(func(f *http2.Framer) error {
				return errors.Join(requests(f, 1, true, headers), f.WriteData(1, false, []byte{0, 0, 0, 0x80, 0})) // the length of a gRPC message
			}),
			more: on(func(f *http2.Framer) error { return f.WriteData(1, false, []byte{' '}) }),
		},
	}
}

// The server cuts off clients that send a byte now and then, over every binding. Meanwhile it serves others, and streams
// that began before live on.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	secured, trust := overTLS(t)
	hasty := clustertest.Replace(clustertest.Steady, "max_block: 1h", "max_block: 1h, request_timeout: 6s, idle_timeout: 1s")
	db := clustertest.NewDB(t)
	plain := clustertest.Start(t, clustertest.Options{Name: "plain", DB: db.URL, Config: hasty})
	modern := clustertest.Start(t, clustertest.Options{Name: "modern", DB: db.URL, Config: hasty + secured})
	guarded := clustertest.Start(t, clustertest.Options{
		Name: "guarded", DB: db.URL, Config: hasty + "auth: {schemes: [{name: keys, kind: api_key}]}\n",
	})
	inTLS := func(address string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return tls.Dial("tcp", address, trust) }
	}
	call := callOf("/lf.a2a.v1.A2AService/SendMessage")
	all := append(overHTTP1(a2atest.Host(plain.URL)), overHTTP1(a2atest.Host(guarded.URL))...)
	for _, door := range [][]*laggard{
		overHTTP2(func() (net.Conn, error) { return net.Dial("tcp", plain.GRPC) }, `"grpc-status" = "1"`, call),
		overHTTP2(inTLS(modern.GRPC), `"grpc-status" = "1"`, call),
		overHTTP2(inTLS(a2atest.Host(modern.URL)), `":status" = "408"`, fields(":method", "POST", ":scheme", "https", ":path", "/", ":authority", "127.0.0.1",
			"content-type", "application/json")),
	} {
		all = append(all, door...)
	}

	// A client that the machine makes slow may be cut off, too, and tries again.
	served := func(what string, try func() error) {
		t.Helper()
		waittest.Eventually(t, what, try)
	}
	var held *a2atest.Result
	served("a task", func() (err error) {
		held, err = plain.TrySend(a2atest.V03, a2atest.Say("hold").Detached())
		return err
	})
	var streams []*a2atest.Reply
	for _, w := range []*a2atest.Wire{a2atest.V03, a2atest.REST10, a2atest.REST03} {
		served("a stream", func() error {
			s, err := plain.TryBegin(w, a2atest.Subscribe, &a2atest.Args{Task: held.ID, After: "0"})
			if err != nil {
				return err
			}
			if _, err = s.Next(); err == nil {
				streams = append(streams, s)
			}
			return err
		})
	}
	slow := map[*laggard]net.Conn{}
	lag := func(l *laggard) {
		l.heard = make(chan string, 1)
		served(l.name, func() error {
			c, err := l.dial()
			if err == nil {
				slow[l] = c
				err = l.begin(c)
			}
			return err
		})
		go l.hear(slow[l])
	}
	for _, l := range all {
		lag(l)
	}
	// Each laggard sends a little after each request of another client.
	for len(slow) > 0 {
		served("others", func() error {
			_, err := plain.TrySend(a2atest.V03, a2atest.Say("echo:meanwhile"))
			return err
		})
		for l, c := range slow {
			select {
			case said := <-l.heard:
				if l.tries++; said == "" && l.told != "" && l.tries < 20 {
					// Its head came too late, or what it sent after the answer has reset the connection before that was read. The next
					// one sends nothing more.
					l.more = write("")
					lag(l)
					continue
				}
				require.Regexp(t, l.told, said, l.name)
				delete(slow, l)
			default:
				_ = l.more(c) // hear notices a failure, too
			}
		}
	}
	served("the end", func() error {
		_, err := plain.Try("tasks/cancel", object{"id": held.ID})
		return waittest.Unless(err == nil || strings.Contains(err.Error(), "-32002"), "%v", err)
	})
	for _, s := range streams {
		require.Equal(t, s.Wire.Worded("canceled"), a2atest.Last(s.Rest()).State(), s.Wire)
	}
}
