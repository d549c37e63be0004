package a2a_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// journal is a log that a test reads while the front writes.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// watched watches the cards of a server in a bubble until the test ends.
func watched(t *testing.T, opts a2a.Options) (a *agent, log *journal, changed chan *a2a.Cards) {
	t.Helper()
	log, changed = &journal{}, make(chan *a2a.Cards, 100)
	opts.CardInterval, opts.Log = time.Minute, slog.New(slog.NewTextHandler(log, nil))
	a, f := newAgent(t, opts)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	a.show(500, "")
	go f.Watch(ctx, nil, func(c *a2a.Cards) { changed <- c })
	return a, log, changed
}

// changedCard is the card that has changed when the card has been read again.
func changedCard(t *testing.T, changed chan *a2a.Cards) *a2a.Cards {
	t.Helper()
	waittest.Advance(2 * time.Minute)
	require.Len(t, changed, 1)
	return <-changed
}

func TestCardsAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, log, changed := watched(t, a2a.Options{})
		waittest.Advance(5 * time.Minute)
		require.GreaterOrEqual(t, a.cardReads.Load(), int64(3))
		require.Empty(t, changed, "no card was read yet")
		require.Zero(t, log.count("could not read"), "the start has logged it")

		a.show(200, streamingCard)
		require.Equal(t, "d", changedCard(t, changed).Public.Description)
		require.Equal(t, 1, log.count("the agent's card was read"))
		waittest.Advance(5 * time.Minute)
		require.Empty(t, changed, "the card is the same")

		for _, bad := range []string{`{"name":`, strings.ReplaceAll(streamingCard, "%s/rpc", "http://192.0.2.1/rpc"), ""} {
			a.show(map[bool]int{true: 500, false: 200}[bad == ""], bad)
			waittest.Advance(5 * time.Minute)
		}
		require.Empty(t, changed, "the old card stays")
		require.Equal(t, 1, log.count("could not read the agent's card again"), "one failure after another is logged once")

		a.show(200, strings.Replace(streamingCard, `"d"`, `"other"`, 1))
		require.Equal(t, "other", changedCard(t, changed).Public.Description)
		require.Equal(t, 2, log.count("the agent's card was read"))
	})
}

func TestRunsFollowTheCard(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{CardInterval: time.Hour})
	a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
	a.on("SendMessage", says(working("")))
	a.on("GetTask", says(taskIn("COMPLETED", "")))
	completes(t, e, executortest.NewRun("hello"))
	a.show(200, strings.NewReplacer("true", "false", `"JSONRPC"`, `"JSONRPC","tenant":"t-1"`).Replace(streamingCard))
	completes(t, e, executortest.NewRun("hello"))
	require.Empty(t, a.called("SendMessage"), "a run does not read a card that is known")
	_, err := e.Cards(t.Context())
	require.NoError(t, err)
	completes(t, e, executortest.NewRun("hello"))
	require.Len(t, a.called("SendMessage"), 1)
	require.Contains(t, string(a.called("SendMessage")[0].Params), `"tenant":"t-1"`)
}

// extended is a server of a version that has an extended card for a credential.
func extended(t *testing.T, version, binding, flag string, at func(r *http.Request, body []byte) bool, wrap string) string {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		card := func(name string) string {
			return fmt.Sprintf(`{"name":%q,"url":"%s/a/rpc","preferredTransport":%q,"protocolVersion":%q,%s}`, name, server.URL, binding, version, flag)
		}
		switch {
		case r.URL.Path == "/.well-known/agent-card.json":
			_, _ = io.WriteString(w, card("Public"))
		case !at(r, body):
			if r.Method == http.MethodPost {
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`)
				return
			}
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer s3cret":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			_, _ = fmt.Fprintf(w, wrap, card("Extended"))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestExtendedCards(t *testing.T) {
	t.Parallel()
	const old, current = `"supportsAuthenticatedExtendedCard":true`, `"capabilities":{"extendedAgentCard":true}`
	method := func(name string) func(*http.Request, []byte) bool {
		return func(_ *http.Request, body []byte) bool { return strings.Contains(string(body), `"`+name+`"`) }
	}
	path := func(path string) func(*http.Request, []byte) bool {
		return func(r *http.Request, _ []byte) bool { return r.Method == http.MethodGet && r.URL.Path == path }
	}
	for name, c := range map[string]struct {
		version, binding, flag string
		at                     func(*http.Request, []byte) bool
		wrap                   string
	}{
		"1.0, JSON-RPC":            {"1.0", "JSONRPC", current, method("GetExtendedAgentCard"), `{"result":%s}`},
		"0.3, HTTP+JSON":           {"0.3.0", "HTTP+JSON", old, path("/a/rpc/v1/card"), `%s`},
		"0.2, beside the endpoint": {"0.2.6", "JSONRPC", old, path("/a/agent/authenticatedExtendedCard"), `%s`},
		"0.2, below the endpoint":  {"0.2.6", "JSONRPC", old, path("/a/rpc/agent/authenticatedExtendedCard"), `%s`},
		"0.3, at the place of 0.2": {"0.3.0", "JSONRPC", old, path("/a/agent/authenticatedExtendedCard"), `%s`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := extended(t, c.version, c.binding, c.flag, c.at, c.wrap)
			cards := func(opts a2a.Options) *a2a.Cards {
				opts.CardURL = url
				e, err := a2a.New(opts)
				require.NoError(t, err)
				cards, err := e.Cards(t.Context())
				require.NoError(t, err)
				require.Equal(t, "Public", cards.Public.Name)
				return cards
			}
			got := cards(a2a.Options{Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}})
			require.NotNil(t, got.Extended)
			require.Equal(t, "Extended", got.Extended.Name)
			require.Equal(t, "Extended", cards(a2a.Options{Headers: map[string]string{"Authorization": "Bearer s3cret"}}).Extended.Name)
			require.Nil(t, cards(a2a.Options{}).Extended, "without a credential")
			require.Nil(t, cards(a2a.Options{Auth: a2a.Auth{Bearer: secrets.Text("another")}}).Extended)
		})
	}
	t.Run("none declared", func(t *testing.T) {
		t.Parallel()
		asked := func(*http.Request, []byte) bool { t.Error("the front has asked for it"); return false }
		e, err := a2a.New(a2a.Options{CardURL: extended(t, "1.0", "JSONRPC", `"capabilities":{}`, asked, ""), Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}})
		require.NoError(t, err)
		cards, err := e.Cards(t.Context())
		require.NoError(t, err)
		require.Nil(t, cards.Extended)
	})
}

// The public card is served also while the extended one cannot be read.
func TestExtendedCardFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, log, changed := watched(t, a2a.Options{Auth: a2a.Auth{Bearer: secrets.Text("s3cret-token")}})
		declares := strings.Replace(streamingCard, `"streaming":true`, `"streaming":true,"extendedAgentCard":true`, 1)
		a.on("GetExtendedAgentCard", fails(-32603, "you sent s3cret-token"))
		a.show(200, declares)
		require.Nil(t, changedCard(t, changed).Extended)
		waittest.Advance(5 * time.Minute)
		require.Empty(t, changed)
		require.Equal(t, 1, log.count("could not read the agent's extended card"))
		require.Zero(t, log.count("s3cret"))

		a.forget("GetExtendedAgentCard")
		a.on("GetExtendedAgentCard", says(strings.ReplaceAll(strings.Replace(declares, "Up", "More", 1), "%s", a.url)))
		require.Equal(t, "More", changedCard(t, changed).Extended.Name)
		for _, bad := range []func(http.ResponseWriter, call){
			fails(-32603, "you sent s3cret-token"), says(`{"s3cret-token":1,"s3cret-token":2}`), says(`{}`), says(`[]`), says(`{"name":"` + strings.Repeat("x", 2<<20) + `"}`),
			func(w http.ResponseWriter, _ call) { w.WriteHeader(503) },
		} {
			a.forget("GetExtendedAgentCard")
			a.on("GetExtendedAgentCard", bad)
			waittest.Advance(2 * time.Minute)
		}
		require.Empty(t, changed, "the last one stays")
		require.Equal(t, 2, log.count("could not read the agent's extended card"))
		a.show(200, streamingCard)
		require.Nil(t, changedCard(t, changed).Extended, "the agent has none any more")
		a.show(200, `{"s3cret-token":1,"s3cret-token":2}`)
		waittest.Advance(2 * time.Minute)
		require.Equal(t, 1, log.count("could not read the agent's card again"))
		require.Zero(t, log.count("s3cret"))
	})
}

// signedCard signs a card of the server with a key.
func (a *agent) signedCard(key *ecdsa.PrivateKey, card string) string {
	a.t.Helper()
	card = strings.ReplaceAll(card, "%s", a.url)
	payload := jsontext.Value(card).Clone()
	require.NoError(a.t, payload.Canonicalize())
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("jku", a.url+"/keys"))
	require.NoError(a.t, err)
	object, err := signer.Sign(payload)
	require.NoError(a.t, err)
	compact, err := object.CompactSerialize()
	require.NoError(a.t, err)
	parts := strings.Split(compact, ".")
	return strings.TrimSuffix(card, "}") + `,"signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`
}

func keySet(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	require.NoError(t, err)
	return string(set)
}

func TestSignaturesOfCards(t *testing.T) {
	t.Parallel()
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		return key
	}
	key, other := newKey(), newKey()
	file := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(file, []byte(keySet(t, key)), 0o600))
	for name, opts := range map[string]a2a.Options{"inline": {CardKeys: keySet(t, key)}, "in a file": {CardKeysFile: file}} {
		a, e := newAgent(t, opts)
		a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
		for what, card := range map[string]string{
			"signatures: is missing": streamingCard, "signatures: none is of a known key": a.signedCard(other, streamingCard),
		} {
			a.show(200, card)
			_, err := execute(t, e, executortest.NewRun("hello"))
			require.ErrorContains(t, err, what, name)
		}
		require.Empty(t, a.called("SendStreamingMessage"), "no message goes to an agent that was not verified")
		a.show(200, a.signedCard(key, streamingCard))
		completes(t, e, executortest.NewRun("hello"))
		require.Zero(t, a.keyReads.Load(), "nobody asks the card's own address for keys")
	}

	// A new key in the file is used without a restart.
	a, e := newAgent(t, a2a.Options{CardKeysFile: file, Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}})
	a.show(200, a.signedCard(other, strings.Replace(streamingCard, `"streaming":true`, `"streaming":true,"extendedAgentCard":true`, 1)))
	_, err := e.Cards(t.Context())
	require.ErrorContains(t, err, "signatures: none")
	require.NoError(t, os.WriteFile(file, []byte(keySet(t, other)), 0o600))
	a.on("GetExtendedAgentCard", says(strings.ReplaceAll(streamingCard, "%s", a.url)))
	a.on("GetExtendedAgentCard", says(a.signedCard(other, streamingCard)))
	cards, err := e.Cards(t.Context())
	require.NoError(t, err)
	require.Nil(t, cards.Extended, "it must be signed, too")
	cards, err = e.Cards(t.Context())
	require.NoError(t, err)
	require.NotNil(t, cards.Extended)
	require.NoError(t, os.Remove(file))
	_, err = e.Cards(t.Context())
	require.ErrorContains(t, err, "a2a.card_keys_file: ")
}
