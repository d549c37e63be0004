package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/http"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func cancellation() *executor.Cancellation {
	return &executor.Cancellation{
		Reason: executor.ReasonCanceled, ID: task.ID{1}, TaskID: "trip-7", ContextID: "c-1", Agent: "travel", Owner: "ada",
		Turn: 2, Attempt: 4, Try: 1, Metadata: json.RawMessage(`{"n":1.0}`), Checkpoint: json.RawMessage(`{"page":12}`),
		Stored: func(_ context.Context, of executor.Scope) (executor.State, error) {
			if of == executor.OfContext {
				return executor.State{}, nil
			}
			return executor.State{Value: json.RawMessage(`{"job":"j-9"}`), Version: 3}, nil
		},
	}
}

func canceler(t *testing.T, handler nethttp.HandlerFunc) executor.Canceler {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	e, err := http.New(http.Options{URL: server.URL, CancelURL: server.URL + "/cancel?key=s3cret", Headers: map[string]string{"X-Key": "k"}})
	require.NoError(t, err)
	return e.(executor.Canceler)
}

func TestCancelDocument(t *testing.T) {
	t.Parallel()
	var got *nethttp.Request
	var doc string
	c := canceler(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, doc = r, string(body)
	})
	require.NoError(t, c.Cancel(t.Context(), cancellation()))
	require.Equal(t, "POST /cancel?key=s3cret", got.Method+" "+got.URL.String())
	id := "01000000-0000-0000-0000-000000000000"
	for name, want := range map[string]string{
		"X-Key": "k", "Content-Type": "application/json", "Idempotency-Key": id + ":2:canceled", "Holdfast-Task-Id": id, "Holdfast-Attempt": "4",
	} {
		require.Equal(t, want, got.Header.Get(name), name)
	}
	require.Equal(t, `{"version":1,"reason":"canceled","idempotencyKey":"`+id+`:2",`+
		`"task":{"id":"trip-7","contextId":"c-1","agent":"travel","owner":"ada"},"turn":2,"attempt":4,"try":1,`+
		`"metadata":{"n":1.0},"checkpoint":{"page":12},"state":{"task":{"data":{"job":"j-9"},"version":3}}}`, doc)
}

func TestWithoutCancelURLNobodyIsTold(t *testing.T) {
	t.Parallel()
	e, err := http.New(http.Options{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	_, told := e.(executor.Canceler)
	require.False(t, told)
	_, err = http.New(http.Options{URL: "http://127.0.0.1:1", CancelURL: "127.0.0.1/cancel"})
	require.EqualError(t, err, "http: cancel_url: must begin with http:// or https://")
}

func TestHostileCancelReceivers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler nethttp.HandlerFunc
		want    string
		refused bool
		after   time.Duration
	}{
		"redirect": {func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.URL.Path != "/cancel" {
				t.Error("followed")
			}
			nethttp.Redirect(w, r, "/elsewhere", nethttp.StatusTemporaryRedirect)
		}, "call the agent's cancel_url: the agent answered 307 Temporary Redirect; redirects are not followed", true, 0},
		"unknown": {func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.WriteHeader(nethttp.StatusNotFound)
			_, _ = io.WriteString(w, "no job")
		}, "call the agent's cancel_url: the agent answered 404 Not Found: no job", true, 0},
		"broken": {func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(nethttp.StatusInternalServerError)
		}, "call the agent's cancel_url: the agent answered 500 Internal Server Error", false, 7 * time.Second},
		"cut": {func(nethttp.ResponseWriter, *nethttp.Request) { panic(nethttp.ErrAbortHandler) }, "call the agent's cancel_url: EOF", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := canceler(t, c.handler).Cancel(t.Context(), cancellation())
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "s3cret")
			after, again := executor.IsRetryable(err)
			require.Equal(t, c.after, after)
			var failure *executor.Failure
			require.Equal(t, c.refused, errors.As(err, &failure) && !again)
		})
	}
}

// A receiver that does not finish its answer holds a delivery for a moment only, and one that does not answer until the
// context ends.
func TestSlowCancelReceivers(t *testing.T) {
	t.Parallel()
	endless := canceler(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.WriteString(w, "x")
		_ = nethttp.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	require.NoError(t, endless.Cancel(t.Context(), cancellation()))
	called := make(chan struct{})
	silent := canceler(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(called)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-called; cancel() }()
	require.ErrorIs(t, silent.Cancel(ctx, cancellation()), context.Canceled)
}
