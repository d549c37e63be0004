package sse_test

import (
	"bytes"
	"errors"
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
	s.Event([]byte("7"), []byte(`{"a":`), []byte(`1`), []byte(`}`))
	s.Event(nil, []byte(`{}`))
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
	s.Event([]byte("1"), chunk)
	require.False(t, s.Full())
	s.Event([]byte("2"), chunk)
	require.True(t, s.Full())
	require.NoError(t, s.Flush())
	require.False(t, s.Full())
	s.Event([]byte("3"), make([]byte, 1<<20))
	require.True(t, s.Full(), "a large event goes out before the next one")
}

// TestLargeEventsAreNotCopied shows that streams write a large document from where it is: they share it.
func TestLargeEventsAreNotCopied(t *testing.T) {
	t.Parallel()
	document := bytes.Repeat([]byte("x"), 1<<20)
	w := &recorder{ResponseRecorder: httptest.NewRecorder(), of: document}
	s := sse.Start(w, time.Second)
	s.KeepAlive()
	s.Event([]byte("7"), []byte(`{"a":"`), document, []byte(`"}`))
	s.Event([]byte("8"), document)
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

type unwilling struct{ http.ResponseWriter }

func (unwilling) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriterErrorIsReturned(t *testing.T) {
	t.Parallel()
	s := sse.Start(unwilling{httptest.NewRecorder()}, time.Second)
	s.KeepAlive()
	require.EqualError(t, s.Flush(), "gone")
}
