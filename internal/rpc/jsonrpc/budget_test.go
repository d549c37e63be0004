package jsonrpc_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/jsonrw"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// large is a send of about a mebibyte in every version.
var large = map[string]string{
	"0.1": strings.Replace(call("tasks/send"), "hi", strings.Repeat("x", 1<<20), 1),
	"0.3": strings.Replace(call("message/send"), "hi", strings.Repeat("x", 1<<20), 1),
	"1.0": strings.Replace(call("SendMessage"), "hi", strings.Repeat("x", 1<<20), 1),
}

func TestFullBudgetRefusesLargeBodies(t *testing.T) {
	t.Parallel()
	budgets := memory.New(64 << 20)
	budgets.Requests.Patience = time.Millisecond
	limited := make(chan string, 10)
	o := options{fake: wants("0.3"), Memory: budgets}
	o.Observer.Limited = func(_, by string) { limited <- by }
	s := serve(t, o)
	require.True(t, budgets.Requests.TryTake("another", budgets.Requests.Stat().Size))
	for version, body := range large {
		for kind, content := range map[string]io.Reader{
			"announced": strings.NewReader(body),
			"chunked":   io.MultiReader(strings.NewReader(body)),
		} {
			a := whole(t, s.begin(t, "/", content, "A2A-Version", version)) //nolint:bodyclose // in whole
			require.Equal(t, http.StatusServiceUnavailable, a.StatusCode, kind)
			require.Equal(t, "2", a.Header.Get("Retry-After"))
			require.Contains(t, a.Error.Message, "memory")
			require.Equal(t, "memory", <-limited)
		}
		// Small requests do not compete with large ones.
		require.Equal(t, http.StatusOK, s.post(t, call("tasks/get")).StatusCode)
	}
	budgets.Requests.Give("another", budgets.Requests.Stat().Size)
	for version, body := range large {
		require.Equal(t, http.StatusOK, s.post(t, body, "A2A-Version", version).StatusCode)
	}
	budgets.Each(func(name string, b *memory.Budget) {
		waittest.Eventually(t, name, func() error { return waittest.Unless(b.Stat().Used == 0, "bytes are in use") })
	})
}

// announced begins a POST whose body has a length.
func announced(t *testing.T, s *server, length int) net.Conn {
	t.Helper()
	head := "POST /agents/demo HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
	return rpctest.Dial(t, s.Server, fmt.Sprintf(head, length))
}

// TestAnnouncedBodyHoldsNothing shows that a client must send before the server takes bytes for it.
func TestAnnouncedBodyHoldsNothing(t *testing.T) {
	t.Parallel()
	budgets := memory.New(64 << 20)
	s := serve(t, options{fake: wants("0.3"), Memory: budgets})
	c := announced(t, s, 15<<20)
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
	synctest.Test(t, func(t *testing.T) {
		quotas := limit.New[identity.Owner](limit.Options{Rate: 1, Burst: 1, Streams: 1})
		s := serve(t, options{fake: wants("0.3"), BodyTimeout: time.Hour, Quotas: quotas, piped: true})
		announced(t, s, 1<<20)
		synctest.Wait()
		require.Equal(t, http.StatusTooManyRequests, readAnswer(t, announced(t, s, 1<<20)).StatusCode)
	})
}

// TestPartsAreCountedWhileTheyAreRead shows that codecs do not build all parts of a body of small ones.
func TestPartsAreCountedWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	for version, part := range map[string]string{
		"0.1": `{"type":"text","text":""}`,
		"0.3": `{"kind":"text","text":""}`,
		"1.0": `{"text":""}`,
	} {
		parts := strings.Repeat(part+",", jsonrw.MaxParts+10) + part
		role := map[string]string{"1.0": "ROLE_USER"}[version]
		if role == "" {
			role = "user"
		}
		params := `{"id":"t-1","message":{"messageId":"m","role":"` + role + `","parts":[` + parts + `]}}`
		got, err := registry.ByVersion(version).Decode(engine.OpSend, []byte(params))
		require.NoError(t, err)
		require.Len(t, got.Send.Message.Parts, jsonrw.MaxParts+1)
	}
}
