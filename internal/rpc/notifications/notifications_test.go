package notifications_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/notifications"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var (
	key, oldKey = []byte("a key of thirty-two bytes......."), []byte("another key of thirty-two bytes.")
	one, other  = task.ID{0x01, 0x94, 15: 1}, task.ID{0x01, 0x94, 15: 2}
)

// rig is the public server, which receives notifications.
type rig struct {
	*httptest.Server
	*notifications.Handler
	mu   sync.Mutex
	came []task.ID
	said map[string]int // outcomes
}

// with returns a handler with one key, which makes tokens.
func with(key []byte) *notifications.Handler {
	return notifications.New(notifications.Options{Tokens: task.NewTokens([][]byte{key})})
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{said: map[string]int{}}
	r.Handler = notifications.New(notifications.Options{Tokens: task.NewTokens([][]byte{key, oldKey}), MaxBody: 1 << 10, Notified: func(id task.ID) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.came = append(r.came, id)
	}, Counted: func(outcome string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said[outcome]++
	}})
	r.Server = httptest.NewServer(rpc.New(rpc.Options{Mounts: []rpc.Mount{{Path: "/notifications", Handler: r.Handler}}, LocalOnly: true, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(r.Close)
	return r
}

// send sends a notification, and returns the answer without its date.
func (r *rig) send(t *testing.T, method, path, body string, header ...string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Host = "holdfast.internal" // agents may know the server by another name
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	response.Header.Del("Date")
	var all bytes.Buffer
	require.NoError(t, response.Write(&all))
	return all.String()
}

// taken returns the tasks of the notifications that counted, and forgets them.
func (r *rig) taken() []task.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	came := r.came
	r.came = nil
	return came
}

func TestTakesTheTokenFromEachHeader(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path, token := r.Target(one)
	require.Regexp(t, "^/notifications/[A-Za-z0-9_-]+$", path)
	require.Regexp(t, "^hfpush_[A-Za-z0-9_-]+$", token)
	for _, header := range [][]string{
		{"X-A2A-Notification-Token", token},
		{"A2A-Notification-Token", token},
		{"X-A2A-Token", token},
		{"Authorization", "Bearer " + token},
		{"authorization", "bearer  " + token},
		{"X-A2A-Notification-Token", "something else", "Authorization", "Bearer " + token, "Origin", "https://example.com"},
	} {
		require.Contains(t, r.send(t, "POST", path, `{"id":"another task"}`, header...), "HTTP/1.1 204 No Content\r\n", header)
		require.Equal(t, []task.ID{one}, r.taken(), header)
	}
}

func TestTakesTokensOfOlderKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path, token := with(oldKey).Target(one)
	require.Contains(t, r.send(t, "POST", path, "", "X-A2A-Notification-Token", token), " 204 ")
	require.Equal(t, []task.ID{one}, r.taken())
}

func TestDropsTheBody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path, token := r.Target(one)
	for _, body := range []string{"", "no JSON", strings.Repeat("x", 1<<10), strings.Repeat("x", 1<<16)} {
		require.Contains(t, r.send(t, "POST", path, body, "X-A2A-Notification-Token", token), " 204 ")
		require.Equal(t, []task.ID{one}, r.taken(), len(body))
	}
}

func TestRepeatsChallenges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path, _ := r.Target(one)
	answer := r.send(t, "GET", path+"?validationToken=%3Cb%3E", "")
	require.Contains(t, answer, " 200 OK\r\n")
	require.Contains(t, answer, "Content-Type: text/plain; charset=utf-8\r\n")
	require.Contains(t, answer, "X-Content-Type-Options: nosniff\r\n")
	require.Regexp(t, "\r\n\r\n<b>$", answer)
	require.Empty(t, r.taken())
	require.Empty(t, r.said)
}

func TestSaysTheSameOfEveryOtherRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path, token := r.Target(one)
	otherPath, otherToken := r.Target(other)
	strangePath, strange := with([]byte("a key of somebody else..........")).Target(one)
	forged := path[:len(path)-1] + "!"
	refused := r.send(t, "POST", path, "")
	require.Contains(t, refused, " 404 ")
	others := map[string][]string{
		"the token of another task":  {"POST", path, "", "X-A2A-Notification-Token", otherToken},
		"the path of another task":   {"POST", otherPath, "", "X-A2A-Notification-Token", token},
		"a token of another key":     {"POST", path, "", "X-A2A-Notification-Token", strange},
		"a part of a token":          {"POST", path, "", "X-A2A-Notification-Token", token[:len(token)-1]},
		"more than a token":          {"POST", path, "", "X-A2A-Notification-Token", token + "A"},
		"a token without its prefix": {"POST", path, "", "X-A2A-Notification-Token", strings.TrimPrefix(token, "hfpush_")},

		"another scheme":              {"POST", path, "", "Authorization", "Basic " + token},
		"a token in the query":        {"POST", path + "?token=" + token, ""},
		"another method":              {"PUT", path, "", "X-A2A-Notification-Token", token},
		"GET":                         {"GET", path, "", "X-A2A-Notification-Token", token},
		"a challenge to a forged URL": {"GET", forged + "?validationToken=x", "", "X-A2A-Notification-Token", token},
		"a long challenge":            {"GET", path + "?validationToken=" + strings.Repeat("x", 1000), ""},
		"a URL of another key":        {"POST", strangePath, "", "X-A2A-Notification-Token", token},
		"a forged URL":                {"POST", forged, "", "X-A2A-Notification-Token", token},
		"a part of the URL":           {"POST", path[:len(path)-8], "", "X-A2A-Notification-Token", token},
		"a long path":                 {"POST", path + "A", "", "X-A2A-Notification-Token", token},
		"the token in the path":       {"POST", "/notifications/" + strings.TrimPrefix(token, "hfpush_"), "", "X-A2A-Notification-Token", token},
		"a path without an id":        {"POST", "/notifications/", "", "X-A2A-Notification-Token", token},
		"the path as the token":       {"POST", path, "", "X-A2A-Notification-Token", "hfpush_" + strings.TrimPrefix(path, "/notifications/")},
	}
	for name, c := range others {
		require.Equal(t, refused, r.send(t, c[0], c[1], c[2], c[3:]...), name)
	}
	require.Empty(t, r.taken())
	require.Equal(t, map[string]int{"refused": 1 + len(others)}, r.said)
}
