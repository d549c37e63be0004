package a2atest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Peer is a server that tests talk to.
type Peer struct {
	T    testing.TB
	Name string
	URL  string // of the public API
	GRPC string // address

	conns *conns
}

// conns are the gRPC connections, by address. A server that restarts has a new address.
type conns struct {
	mu sync.Mutex
	of map[string]*grpc.ClientConn
}

// NewPeer makes a Peer whose addresses the caller fills in. Its connections end with the test.
func NewPeer(t testing.TB, name string) Peer {
	t.Helper()
	c := &conns{of: map[string]*grpc.ClientConn{}}
	t.Cleanup(func() {
		for _, conn := range c.of {
			_ = conn.Close()
		}
	})
	return Peer{T: t, Name: name, conns: c}
}

// In returns the same server for another test.
func (p *Peer) In(t testing.TB) *Peer {
	t.Helper()
	of := *p
	of.T = t
	return &of
}

// Under returns the same server below a path.
func (p *Peer) Under(path string) *Peer {
	of := *p
	of.URL += path
	return &of
}

// Conn returns a connection to the server's gRPC address.
func (p *Peer) Conn() *grpc.ClientConn {
	p.T.Helper()
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	if c := p.conns.of[p.GRPC]; c != nil {
		return c
	}
	conn, err := grpc.NewClient(p.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(p.T, err)
	p.conns.of[p.GRPC] = conn
	return conn
}

// Begin makes a request and returns when the answer begins. The caller reads the rest.
func (p *Peer) Begin(w *Wire, op Op, a *Args) *Reply {
	p.T.Helper()
	r, err := p.TryBegin(w, op, a)
	require.NoError(p.T, err, "%s, %s on %s", w, op, p.Name)
	p.T.Cleanup(r.Close)
	return r
}

// TryBegin is Begin for any goroutine. The caller closes the reply.
func (p *Peer) TryBegin(w *Wire, op Op, a *Args) (*Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*waittest.Patience)
	if w.Binding == GRPC {
		return p.beginGRPC(ctx, cancel, w, op, a)
	}
	verb, path, body := w.web(op, a)
	header := w.header(a)
	if w == V01 && op.Streams() {
		header = append(header, "X-A2A-Extensions", ResumeURI)
	}
	resp, err := do(ctx, http.DefaultClient, verb, p.URL+path, body, header) //nolint:bodyclose // Close does
	if err != nil {
		cancel()
		return nil, err
	}
	r := NewReply(p.T, w, resp)
	r.Close = func() { cancel(); _ = resp.Body.Close() }
	return r, nil
}

// web returns the verb, path and body of an operation over HTTP.
func (w *Wire) web(op Op, a *Args) (verb, path string, body []byte) {
	base := ""
	if a.Agent != "" {
		base = "/agents/" + a.Agent
	}
	if w.Binding == JSONRPC {
		return http.MethodPost, base, w.Request(op, a)
	}
	verb, path, doc := w.request(op, a)
	if doc != nil {
		body = JSON(doc)
	}
	return verb, base + w.prefix + path, body
}

// header returns the headers of an operation, or its metadata.
func (w *Wire) header(a *Args) []string {
	var out []string
	if w.Version != "" {
		out = append(out, "A2A-Version", w.Version)
	}
	position := "Last-Event-ID"
	if w.Binding == GRPC {
		position = "A2A-Last-Event-Id"
	}
	if a.After != "" {
		out = append(out, position, a.After)
	}
	return append(out, a.Header...)
}

// ResumeURI is the extension that puts the ids of events into messages of gRPC, and gives those of 0.1 ids.
const ResumeURI = "https://github.com/holdfast-a2a/holdfast/blob/main/docs/extensions/resume.md"

func (p *Peer) beginGRPC(ctx context.Context, cancel func(), w *Wire, op Op, a *Args) (*Reply, error) {
	header := w.header(a)
	if op.Streams() {
		header = append(header, "A2A-Extensions", ResumeURI)
	}
	s, newOut, err := p.invoke(ctx, w, w.methods[op], JSON(w.Params(op, a)), header)
	if err != nil {
		cancel()
		return nil, err
	}
	r := &Reply{T: p.T, Wire: w, Streaming: op.Streams(), Close: cancel}
	r.read = func() (id string, data []byte, err error) {
		out := newOut()
		if err := s.RecvMsg(out); err != nil {
			r.ended(err, s.Trailer())
			return "", nil, err
		}
		data, err = protojson.Marshal(out)
		if err != nil || !r.Streaming {
			return "", data, err
		}
		return unmarked(data)
	}
	return r, nil
}

// invoke begins a gRPC call with a message in JSON.
func (p *Peer) invoke(ctx context.Context, w *Wire, method string, message []byte, header []string) (grpc.ClientStream, func() proto.Message, error) {
	m := w.service.Methods().ByName(protoreflect.Name(method))
	if m == nil {
		return nil, nil, errors.New("no method " + method)
	}
	in := newMessage(m.Input())
	if err := protojson.Unmarshal(message, in); err != nil {
		return nil, nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, header...)
	s, err := p.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+string(w.service.FullName())+"/"+method)
	if err != nil {
		return nil, nil, err
	}
	if err := s.SendMsg(in); err != nil && !errors.Is(err, io.EOF) { // EOF: the server has answered already
		return nil, nil, err
	}
	return s, func() proto.Message { return newMessage(m.Output()) }, s.CloseSend()
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return m.New().Interface()
}

// Finish makes a request and reads the whole answer.
func (p *Peer) Finish(w *Wire, op Op, a *Args) *Reply {
	p.T.Helper()
	r := p.Begin(w, op, a)
	r.More("")
	r.Close()
	return r
}

// Do is Finish.
func (p *Peer) Do(o Operation, a *Args) *Reply { p.T.Helper(); return p.Finish(o.Wire, o.Op, a) }

// Send sends a message that the server must accept. It returns the task or the message in the answer.
func (p *Peer) Send(w *Wire, a *Args) *Result { return p.result(w, Send, a) }

// TrySend sends a message. Any goroutine may call it.
func (p *Peer) TrySend(w *Wire, a *Args) (*Result, error) {
	r, err := p.TryBegin(w, Send, a)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	e, err := r.Next()
	if err != nil {
		return nil, err
	}
	return e.Result, nil
}

// result makes a request that must succeed, and returns its result.
func (p *Peer) result(w *Wire, op Op, a *Args) *Result {
	p.T.Helper()
	r := p.Begin(w, op, a)
	defer r.Close()
	e, err := r.Next()
	require.NoError(p.T, err, "%s, %s on %s: %s", w, op, p.Name, r.Body)
	return e.Result
}

// Stream sends a message whose answer must be a stream.
func (p *Peer) Stream(w *Wire, a *Args) *Reply { return p.stream(w, Stream, a) }

// Subscribe opens the stream of a task.
func (p *Peer) Subscribe(w *Wire, a *Args) *Reply { return p.stream(w, Subscribe, a) }

func (p *Peer) stream(w *Wire, op Op, a *Args) *Reply {
	p.T.Helper()
	r := p.Begin(w, op, a)
	if !r.Streaming {
		r.More("")
		require.FailNow(p.T, "not a stream", "%s, %s on %s: %s %s", w, op, p.Name, r.Status, r.Body)
	}
	return r
}

// Resume continues the stream of a task after an event, in the task's version.
func (p *Peer) Resume(task string, after int64) *Reply {
	p.T.Helper()
	return p.ResumeOver(Unversioned, task, after)
}

// ResumeAt is Resume after the event with an id.
func (p *Peer) ResumeAt(task, id string) *Reply {
	p.T.Helper()
	return p.stream(Unversioned, Subscribe, &Args{Task: task, After: id})
}

// ResumeOver is Resume over any wire.
func (p *Peer) ResumeOver(w *Wire, task string, after int64) *Reply {
	p.T.Helper()
	return p.stream(w, Subscribe, &Args{Task: task, After: strconv.FormatInt(after, 10)})
}

// Get reads a task in its own version.
func (p *Peer) Get(task string) *Result { return p.GetOver(Unversioned, Say().To(task)) }

// GetOver is Get over any wire.
func (p *Peer) GetOver(w *Wire, a *Args) *Result { p.T.Helper(); return p.result(w, Get, a) }

// ListOver lists tasks.
func (p *Peer) ListOver(w *Wire, a *Args) *Result { p.T.Helper(); return p.result(w, List, a) }

// Cancel cancels a task; the request must succeed.
func (p *Peer) Cancel(task string) *Result { return p.CancelOver(Unversioned, Say().To(task)) }

// CancelOver is Cancel over any wire.
func (p *Peer) CancelOver(w *Wire, a *Args) *Result { p.T.Helper(); return p.result(w, Cancel, a) }

// Settled waits until a task is parked or has ended.
func (p *Peer) Settled(task string) (res *Result) {
	p.T.Helper()
	waittest.Eventually(p.T, task+" settles", func() (err error) {
		if res, err = p.Try("tasks/get", Object{"id": task}); err != nil {
			return err
		}
		s := res.State()
		return waittest.Unless(s != "submitted" && s != "working", "it is %s", s)
	})
	return res
}

// Host is the address in an http URL.
func Host(url string) string { return strings.TrimPrefix(url, "http://") }
