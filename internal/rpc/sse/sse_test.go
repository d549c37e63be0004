package sse_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := sse.Start(w, time.Second)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	require.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
	require.Equal(t, "no", w.Header().Get("X-Accel-Buffering"))
	s.Event(7, []byte(`{"a":`), []byte(`1`), []byte(`}`))
	s.Event(0, []byte(`{}`))
	s.KeepAlive()
	require.Empty(t, w.Body.String(), "nothing is written before Flush")
	require.NoError(t, s.Flush())
	require.Equal(t, "id: 7\ndata: {\"a\":1}\n\ndata: {}\n\n: keep-alive\n\n", w.Body.String())
	require.True(t, w.Flushed)
	require.NoError(t, s.Flush())
	require.Equal(t, 1, strings.Count(w.Body.String(), "keep-alive"), "nothing is written twice")
}

func TestFull(t *testing.T) {
	t.Parallel()
	s := sse.Start(httptest.NewRecorder(), time.Second)
	chunk := []byte(strings.Repeat("x", 16<<10))
	s.Event(1, chunk)
	require.False(t, s.Full())
	s.Event(2, chunk)
	require.True(t, s.Full())
	require.NoError(t, s.Flush())
	require.False(t, s.Full())
	s.Event(3, make([]byte, 1<<20))
	require.True(t, s.Full(), "a large event goes out before the next one")
}

// TestLargeEventsAreNotCopied shows that streams write a large document from where it is: they share it.
func TestLargeEventsAreNotCopied(t *testing.T) {
	t.Parallel()
	document := bytes.Repeat([]byte("x"), 1<<20)
	w := &recorder{ResponseRecorder: httptest.NewRecorder(), of: document}
	s := sse.Start(w, time.Second)
	s.KeepAlive()
	s.Event(7, []byte(`{"a":"`), document, []byte(`"}`))
	s.Event(8, document)
	require.NoError(t, s.Flush())
	require.Equal(t, 2*len(document), w.shared)
	require.Equal(t, ": keep-alive\n\nid: 7\ndata: {\"a\":\""+string(document)+"\"}\n\nid: 8\ndata: "+string(document)+"\n\n", w.Body.String())
}

// recorder counts the bytes that are written from the memory of a document.
type recorder struct {
	*httptest.ResponseRecorder
	of     []byte
	shared int
}

func (r *recorder) Write(p []byte) (int, error) {
	first, last := uintptr(unsafe.Pointer(&r.of[0])), uintptr(unsafe.Pointer(&r.of[len(r.of)-1]))
	if at := uintptr(unsafe.Pointer(&p[0])); first <= at && at <= last {
		r.shared += len(p)
	}
	return r.ResponseRecorder.Write(p)
}

// Each flush reaches the client by itself. The stream ends cleanly even long after the deadline of the last write.
func TestFlushReachesTheClient(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	next := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := sse.Start(w, timeout)
		if s.Flush() != nil {
			return
		}
		<-next
		s.Event(1, []byte("{}"))
		if s.Flush() != nil {
			return
		}
		<-time.After(timeout) // starts after the write, so its deadline has passed
		_ = s.Flush()
	}))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	resp, err := server.Client().Do(r) // returns after the headers
	require.NoError(t, err)
	close(next)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "id: 1\ndata: {}\n\n", string(body))
}

func TestFlushFailsIfClientReadsNothing(t *testing.T) {
	t.Parallel()
	flushed := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := sse.Start(w, 50*time.Millisecond)
		s.Event(1, []byte(strings.Repeat("x", 64<<20)))
		flushed <- s.Flush()
	}))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	require.Error(t, <-flushed)
	require.NoError(t, resp.Body.Close())
}

type unwilling struct{ http.ResponseWriter }

func (unwilling) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriterErrorIsReturned(t *testing.T) {
	t.Parallel()
	s := sse.Start(unwilling{httptest.NewRecorder()}, time.Second)
	s.KeepAlive()
	require.EqualError(t, s.Flush(), "gone")
}
