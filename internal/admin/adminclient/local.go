package adminclient

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// inProcess is an http.RoundTripper that calls a handler. No connection is between them.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. It returns when the handler begins its answer, also if the request is canceled: the handler
// may have something to give back, and to say.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	body, to := io.Pipe()
	a := &answer{to: to, header: http.Header{}, begun: make(chan struct{})}
	request := r.Clone(ctx)
	if request.Body == nil {
		request.Body = http.NoBody
	}
	go func() {
		defer cancel()
		p.handler.ServeHTTP(a, request)
		a.begin(http.StatusOK, r.Context().Err())
		_ = to.Close() // cannot fail
	}()
	<-a.begun
	if a.left != nil {
		return nil, a.left
	}
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.sent,
		Body: &answerBody{body, cancel}, ContentLength: -1, Request: r,
	}, nil
}

// answerBody ends the request when its reader closes it.
type answerBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *answerBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// answer is the http.ResponseWriter of a handler in this process.
type answer struct {
	to     *io.PipeWriter
	header http.Header
	once   sync.Once
	begun  chan struct{} // closed when the members below are set
	status int
	sent   http.Header
	left   error // why there is no answer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.begin(status, nil) }

func (a *answer) begin(status int, left error) {
	a.once.Do(func() {
		a.status, a.sent, a.left = status, a.header.Clone(), left
		close(a.begun)
	})
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.to.Write(p)
}

// Flush implements http.Flusher: what is written is at its reader.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }
