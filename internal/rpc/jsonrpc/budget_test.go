package jsonrpc_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/jsonrw"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// large is a send of about a mebibyte in every version.
var large = map[string]string{
	"0.1": request("1", "tasks/send", `{"id":"t-1","message":{"role":"user","parts":[{"type":"text","text":"`+strings.Repeat("x", 1<<20)+`"}]}}`),
	"0.3": request("1", "message/send", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"`+strings.Repeat("x", 1<<20)+`"}]}}`),
	"1.0": request("1", "SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"`+strings.Repeat("x", 1<<20)+`"}]}}`),
}

func TestFullBudgetRefusesLargeBodies(t *testing.T) {
	t.Parallel()
	budgets := memory.New(64 << 20)
	budgets.Requests.Patience = time.Millisecond
	limited := make(chan string, 10)
	o := options{fake: &fakeEngine{task: sample("0.3")}, Memory: budgets}
	o.Observer.Limited = func(_, by string) { limited <- by }
	s := serve(t, o)
	require.True(t, budgets.Requests.TryTake("another", budgets.Requests.Stat().Size))
	for version, body := range large {
		for kind, content := range map[string]io.Reader{
			"announced": strings.NewReader(body),
			"chunked":   io.MultiReader(strings.NewReader(body)),
		} {
			a := s.do(t, s.newRequest(t, "/", content, "A2A-Version", version))
			require.Equal(t, http.StatusServiceUnavailable, a.StatusCode, kind)
			require.Equal(t, "2", a.Header.Get("Retry-After"))
			require.Contains(t, a.Error.Message, "memory")
			require.Equal(t, "memory", <-limited)
		}
		// Small requests do not compete with large ones.
		require.Equal(t, http.StatusOK, s.post(t, request("1", "tasks/get", `{"id":"t-1"}`)).StatusCode)
	}
	budgets.Requests.Give("another", budgets.Requests.Stat().Size)
	for version, body := range large {
		require.Equal(t, http.StatusOK, s.do(t, s.newRequest(t, "/", strings.NewReader(body), "A2A-Version", version)).StatusCode)
	}
	budgets.Each(func(name string, b *memory.Budget) {
		waittest.Eventually(t, name, func() error { return waittest.Unless(b.Stat().Used == 0, "bytes are in use") })
	})
}

// TestAnnouncedBodyHoldsNothing shows that a client must send before the server takes bytes for it.
func TestAnnouncedBodyHoldsNothing(t *testing.T) {
	t.Parallel()
	budgets := memory.New(64 << 20)
	s := serve(t, options{fake: &fakeEngine{task: sample("0.3")}, Memory: budgets})
	c := dialRaw(t, s, 15<<20)
	_, err := io.WriteString(c, strings.Repeat(" ", 1000))
	require.NoError(t, err)
	waittest.Eventually(t, "the request", func() error { return waittest.Unless(budgets.Small.Stat().Used > 0, "no bytes in use") })
	require.Zero(t, budgets.Requests.Stat().Used)
	_, err = io.WriteString(c, strings.Repeat(" ", memory.Small))
	require.NoError(t, err)
	waittest.Eventually(t, "the rest", func() error { return waittest.Unless(budgets.Requests.Stat().Used > 15<<20, "bytes are in use") })
	require.NoError(t, c.Close())
	waittest.Eventually(t, "the end", func() error {
		return waittest.Unless(budgets.Requests.Stat().Used == 0 && budgets.Small.Stat().Used == 0, "bytes are in use")
	})
}

// TestRateIsChargedBeforeTheBody sends no body where the path names the agent.
func TestRateIsChargedBeforeTheBody(t *testing.T) {
	t.Parallel()
	s := serve(t, options{
		fake: &fakeEngine{task: sample("0.3")}, BodyTimeout: time.Minute,
		Quotas: limit.New[identity.Owner](limit.Options{Rate: 1, Burst: 1, Streams: 1}),
	})
	first := dialRaw(t, s, 1<<20)
	_, err := io.WriteString(first, large["0.3"][:1000])
	require.NoError(t, err)
	second := dialRaw(t, s, 1<<20)
	// The first may be charged last.
	got := make(chan string, 2)
	for _, c := range []net.Conn{first, second} {
		go func() {
			b := make([]byte, 100)
			n, _ := c.Read(b)
			got <- string(b[:n])
		}()
	}
	require.Contains(t, <-got, "HTTP/1.1 429")
}

// dialRaw begins a POST whose body is announced with a length.
func dialRaw(t *testing.T, s *server, length int) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(c, "POST /agents/demo HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	require.NoError(t, err)
	return c
}

// TestPartsAreCountedWhileTheyAreRead shows that codecs do not build all parts of a body of small ones.
func TestPartsAreCountedWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	parts := func(part string) string { return "[" + strings.Repeat(part+",", 200_000) + part + "]" }
	for version, params := range map[string]string{
		"0.1": `{"id":"t-1","message":{"role":"user","parts":` + parts(`{"type":"text","text":""}`) + `}}`,
		"0.3": `{"message":{"messageId":"m","role":"user","parts":` + parts(`{"kind":"text","text":""}`) + `}}`,
		"1.0": `{"message":{"messageId":"m","role":"ROLE_USER","parts":` + parts(`{"text":""}`) + `}}`,
	} {
		call, err := registry.ByVersion(version).Decode(engine.OpSend, []byte(params))
		require.NoError(t, err)
		require.Len(t, call.Send.Message.Parts, jsonrw.MaxParts+1)
	}
}
