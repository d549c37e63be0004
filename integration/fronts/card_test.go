package fronts

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// shop is a server with a card that a test changes. Each message to it is a completed task.
type shop struct {
	*httptest.Server
	mu    sync.Mutex
	card  string // "" while the server is away
	reads int
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// show changes the card. Its members of 1.0 are given, without those that each card has.
func (s *shop) show(members string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.card = ""
	if members != "" {
		s.card = fmt.Sprintf(`{"version":"1","description":"d","supportedInterfaces":[{"url":"%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],%s}`, s.URL, members)
	}
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reads++
		if s.card == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, s.card)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if strings.Contains(string(body), "GetExtendedAgentCard") {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"name":"Back room","version":"1","description":"d","defaultInputModes":["image/png"],
			"supportedInterfaces":[{"url":"%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}}`, s.URL)
		return
	}
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"up-1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}`)
}

// readAgain waits until the card was read a few more times.
func (s *shop) readAgain(t *testing.T) {
	t.Helper()
	reads := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.reads }
	from := reads()
	waittest.Eventually(t, "the card is read", func() error { return waittest.Unless(reads() > from+3, "not yet") })
}

// cardOf returns the members of a card that the front serves.
func cardOf(t *testing.T, url string) (c struct {
	Name         string
	Skills       []struct{ ID string }
	Capabilities struct{ Extensions []struct{ URI string } }
},
) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&c))
	return c
}

func TestFrontFollowsTheAgentsCard(t *testing.T) {
	t.Parallel()
	up := openShop(t)
	config := clustertest.Settings + front("shop", fmt.Sprintf("card_url: %q, card_interval: 100ms, auth: {bearer: s3cret}", up.URL), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
	at := f.URL + "/agents/shop/.well-known/agent-card.json"
	shows := func(name string) {
		t.Helper()
		waittest.Eventually(t, "the card has the name "+name, func() error {
			c := cardOf(t, at)
			return waittest.Unless(c.Name == name, "it has %q", c.Name)
		})
	}
	send := func(media, extension string) string {
		t.Helper()
		resp, err := a2atest.Post(t.Context(), f.URL+"/agents/shop", a2atest.Request("SendMessage", a2atest.Object{
			"message": a2atest.Object{"messageId": media + extension, "role": "ROLE_USER", "parts": []any{a2atest.Object{"url": "http://h/f", "mediaType": media}}},
		}), "A2A-Version", "1.0", "A2A-Extensions", extension)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(body)
	}
	require.Equal(t, "shop", cardOf(t, at).Name, "the agent was away when the server started")
	require.Contains(t, send("image/png", ""), "TASK_STATE_")

	up.show(`"name":"Corner shop","defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"sell","name":"Sell"}]`)
	shows("Corner shop")
	require.Equal(t, "sell", cardOf(t, at).Skills[0].ID)
	require.Contains(t, send("image/png", ""), "image/png", "the agent does not read it")
	require.Contains(t, send("text/plain", ""), "TASK_STATE_")

	up.show(`"name":"Art shop","defaultInputModes":["image/png"],"defaultOutputModes":["image/png"],"capabilities":{"extensions":[{"uri":"urn:frame","required":true}]}`)
	shows("Art shop")
	require.Contains(t, send("image/png", ""), "urn:frame", "an extension is required")
	require.Contains(t, send("image/png", "urn:frame"), "TASK_STATE_")

	up.show(`"name":"Public shop","skills":[{"id":"sell","name":"Sell"}],"capabilities":{"extendedAgentCard":true}`)
	shows("Public shop")
	extended := f.URL + "/agents/shop/agent/authenticatedExtendedCard"
	require.Equal(t, "Back room", cardOf(t, extended).Name)
	require.Equal(t, "Public shop", cardOf(t, at).Name)
	require.Contains(t, send("image/png", ""), "TASK_STATE_", "only the extended card says that it reads images")
	require.NotContains(t, f.Log(), "s3cret")

	up.show("")
	up.readAgain(t)
	require.Equal(t, "Public shop", cardOf(t, at).Name)
	require.Equal(t, "Back room", cardOf(t, extended).Name)
	require.Equal(t, 1, strings.Count(f.Log(), "could not read the agent's card again"))
}

// Holdfast signs its cards, so a front of another Holdfast can check them.
func TestFrontChecksSignatures(t *testing.T) {
	t.Parallel()
	up := clustertest.Start(t, clustertest.Options{Name: "up", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
	resp, err := http.Get(up.URL + "/.well-known/jwks.json")
	require.NoError(t, err)
	defer resp.Body.Close()
	keys, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	stranger := openShop(t)
	stranger.show(`"name":"Stranger"`)
	config := clustertest.Settings +
		front("signed", fmt.Sprintf("card_url: %q, card_keys: '%s'", up.URL, keys), "") +
		front("unsigned", fmt.Sprintf("card_url: %q, card_keys: '%s'", stranger.URL, keys), "")
	db := clustertest.NewDB(t)
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: config})
	theirs := cardOf(t, up.URL+"/.well-known/agent-card.json")
	require.Equal(t, theirs.Name, cardOf(t, f.URL+"/agents/signed/.well-known/agent-card.json").Name)
	res := f.Send(a2atest.V03, a2atest.Say("echo:hello").At("signed"))
	require.Equal(t, "completed", res.State(), res.Said())

	require.Equal(t, "unsigned", cardOf(t, f.URL+"/agents/unsigned/.well-known/agent-card.json").Name)
	res = f.Send(a2atest.V03, a2atest.Say("hello").At("unsigned"))
	require.Equal(t, "failed", res.State())
	require.Contains(t, clustertest.One[string](db, "SELECT error FROM holdfast.v_runs WHERE error <> ''"), "a2a.card_keys: signatures: is missing; with keys for cards, a card must be signed")
}
