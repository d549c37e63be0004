package webhooks

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/certtest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// asked are the states of a task that asks a question and gets an answer.
var asked = []string{"working", "input-required", "submitted", "working", "completed"}

// fine are the outcomes when all its deliveries succeed.
var fine = []string{"delivered", "delivered", "delivered", "delivered", "delivered"}

// Whatever a receiver does, each event is retried until the receiver accepts it, before the next one; an accepted
// event is not repeated.
func TestDeliveriesToFaultyReceivers(t *testing.T) {
	t.Parallel()
	elsewhere := receivertest.Start(t, 1)
	away := func(status int) receivertest.Act {
		return receivertest.Act{Status: status, Header: http.Header{"Location": {elsewhere.URL}}, Text: "over there"}
	}
	status := func(status int) receivertest.Act { return receivertest.Act{Status: status, Text: "because"} }
	ok := receivertest.Act{}
	long := "ask:" + strings.Repeat("and then? ", 200_000) // more than the buffers of a connection hold
	for_ := func(n int, class string) []string { return append(slices.Repeat([]string{class}, n), fine...) }
	cases := []struct {
		name   string
		script string
		acts   []receivertest.Act
		want   []string // outcomes of the attempts
		last   string   // error
	}{
		{
			name: "flaps", last: "the receiver answered 500 Internal Server Error: because",
			acts: []receivertest.Act{status(500), ok, status(502), status(503), {Status: 202}, ok, status(504), status(599), status(500), {Status: 200, Text: "thanks"}, ok},
			want: []string{"server", "delivered", "server", "server", "delivered", "delivered", "server", "server", "server", "delivered", "delivered"},
		},
		{
			name: "refuses", last: "the receiver answered 429 Too Many Requests: because",
			acts: []receivertest.Act{status(400), status(401), status(403), status(404), status(408), status(429), ok},
			want: append([]string{"client", "client", "client", "client", "throttled", "throttled"}, fine...),
		},
		{name: "never answers", acts: []receivertest.Act{{Do: receivertest.NeverAnswers}, ok}, want: for_(1, "timeout"), last: "deadline exceeded"},
		{name: "never ends its headers", acts: []receivertest.Act{{Do: receivertest.HangsInHeaders}, ok}, want: for_(1, "timeout"), last: "deadline exceeded"},
		{name: "accepts and never ends its body", acts: []receivertest.Act{{Do: receivertest.HangsInBody, Status: 200}}, want: fine},
		{
			name: "fails and never ends its body", acts: []receivertest.Act{{Do: receivertest.HangsInBody, Status: 500, Text: "because"}, ok},
			want: for_(1, "server"), last: "the receiver answered 500 Internal Server Error: because",
		},
		{
			name: "redirects", acts: []receivertest.Act{away(301), away(302), away(303), away(307), away(308), ok},
			want: for_(5, "redirect"), last: "the receiver answered 308 Permanent Redirect; redirects are not followed",
		},
		{name: "resets", acts: []receivertest.Act{{Do: receivertest.Resets}, {Do: receivertest.Resets}, ok}, want: for_(2, "network"), last: "connection reset by peer"},
		{name: "resets before it has read", script: long, acts: []receivertest.Act{{Do: receivertest.ResetsUnread}, {Do: receivertest.ResetsUnread}, ok}, want: for_(2, "network")},
		{name: "closes", acts: []receivertest.Act{{Do: receivertest.Closes}, ok}, want: for_(1, "network"), last: "EOF"},
		{name: "is not HTTP", acts: []receivertest.Act{{Do: receivertest.SpeaksOtherwise}, ok}, want: for_(1, "network"), last: "malformed HTTP"},
	}
	db := clustertest.NewDB(t)
	// The timeout is long: only the receiver that never answers exceeds it.
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"timeout": "15s", "coalesce_after": 0})})
	hook := receivertest.Start(t, len(cases))
	tasks := make([]string, len(cases))
	for i, c := range cases {
		hook.Behave(a2atest.Host(hook.URLs[i]), c.acts...)
		if c.script == "" {
			c.script = "ask:0"
		}
		tasks[i] = tell(r, hookWires[i%len(hookWires)], "", c.script, fmt.Sprintf("%s/%d", hook.URLs[i], i))
	}
	for i := range cases {
		tell(r, hookWires[i%len(hookWires)], tasks[i], "well", "")
	}
	told := hook.UntilAll(db, len(cases))
	for i, c := range cases {
		require.Equal(t, asked, told.States["/"+strconv.Itoa(i)], c.name)
		require.Equal(t, c.want, classes(db, tasks[i]), c.name)
		// Only if the receiver itself ends an exchange does it see that end before the next request.
		if !slices.ContainsFunc(c.acts, func(a receivertest.Act) bool { return a.Do != receivertest.Answers }) {
			require.Equal(t, 1, hook.Tally(a2atest.Host(hook.URLs[i])).Most, "%s: one at a time", c.name)
		}
		if c.last == "" {
			continue
		}
		require.Contains(t, clustertest.One[string](db, `SELECT error FROM holdfast.v_push_attempts
			WHERE task_id = $1 AND error IS NOT NULL ORDER BY attempt_id DESC LIMIT 1`, tasks[i]), c.last, c.name)
	}
	require.Zero(t, elsewhere.Tally("").Posts)
	require.Empty(t, elsewhere.Rest())
}

// The server obeys Retry-After, whatever happens to the task.
func TestServerObeysRetryAfter(t *testing.T) {
	t.Parallel()
	cases := []receivertest.Act{
		{Status: 503, Header: http.Header{"Retry-After": {"2"}}},
		{Status: 429, Header: http.Header{"Retry-After": {"1"}}},
		{Status: 503, RetryDate: 3 * time.Second},
	}
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(nil)})
	hook := receivertest.Start(t, 1)
	tasks := make([]string, len(cases))
	for i, c := range cases {
		path := "/" + hookWires[i].Version
		hook.Behave(path, c, receivertest.Act{})
		tasks[i] = tell(r, hookWires[i], "", "ask:0", hook.URL+path)
		tell(r, hookWires[i], tasks[i], "well", "")
	}
	came := map[string][]*receivertest.Notification{}
	for ended := 0; ended < len(cases); {
		n := hook.Next("the end of every task")
		came[n.Path] = append(came[n.Path], n)
		if n.State(t) == "completed" {
			ended++
		}
	}
	for i := range cases {
		all := came["/"+hookWires[i].Version]
		require.Len(t, all, 1+len(asked))
		first, second := all[0], all[1]
		require.Equal(t, first.ID(), second.ID())
		seconds, err := strconv.Atoi(first.RetryAfter)
		until := first.At.Add(time.Duration(seconds) * time.Second)
		if err != nil {
			until, err = http.ParseTime(first.RetryAfter)
			require.NoError(t, err)
		}
		require.False(t, second.At.Before(until), "%s: retried at %v, before %v", first.Path, second.At, until)
	}
}

// pushes lists the webhooks as an operator does.
func pushes(db *clustertest.DB, args ...string) (rows []struct {
	TaskID      string `json:"task_id"`
	ConfigID    string `json:"config_id"`
	State       string
	Behind      int
	DisabledFor string `json:"disabled_for"`
},
) {
	db.T.Helper()
	require.NoError(db.T, json.Unmarshal([]byte(db.Operate(append([]string{"push", "list", "-o", "json"}, args...)...)), &rows))
	return rows
}

// awaitDisabled waits until n webhooks are disabled.
func awaitDisabled(db *clustertest.DB, n int) {
	db.T.Helper()
	waittest.Eventually(db.T, "webhooks are disabled", func() error {
		is := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_push WHERE disabled_at IS NOT NULL")
		return waittest.Unless(is == n, "%d", is)
	})
}

// classes are the outcomes of the attempts for a task, in order.
func classes(db *clustertest.DB, taskID string) []string {
	db.T.Helper()
	return clustertest.Column[string](db, "SELECT class FROM holdfast.v_push_attempts WHERE task_id = $1 ORDER BY attempt_id", taskID)
}

// A 410 disables the webhook, and the operator sees the reason. The client may set it again.
func TestGoneReceiverDisablesWebhook(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(nil)})
	hook := receivertest.Start(t, 1)
	hook.Behave("/gone", receivertest.Act{Status: http.StatusGone})
	id := tell(r, a2atest.V03, "", "ask:0", hook.URL+"/gone")
	awaitDisabled(db, 1)

	// A second webhook shows when all later events have been delivered.
	set := func(configID, path string) {
		r.Call("tasks/pushNotificationConfig/set", object{
			"taskId": id, "pushNotificationConfig": object{"id": configID, "url": hook.URL + path},
		})
	}
	set("other", "/other")
	tell(r, a2atest.V03, id, "well", "")
	told := hook.UntilAll(db, 1)
	require.Equal(t, asked[2:], told.States["/other"])
	require.Equal(t, asked[:1], told.States["/gone"])
	require.Equal(t, 1, hook.Tally("/gone").Posts)

	const why = "the receiver answered 410 Gone"
	rows := pushes(db, "--disabled")
	require.Len(t, rows, 1)
	require.Equal(t, []any{id, id, "disabled", why}, []any{rows[0].TaskID, rows[0].ConfigID, rows[0].State, rows[0].DisabledFor})
	require.Greater(t, rows[0].Behind, 4)
	require.Contains(t, db.Operate("push", "list"), why)
	require.Equal(t, []string{why}, clustertest.Column[string](db, "SELECT disabled_for FROM holdfast.v_push WHERE disabled_at IS NOT NULL"))
	require.Equal(t, 1, clustertest.One[int](db, "SELECT last_status - 409 FROM holdfast.v_push WHERE config_id = $1", id))

	set("", "/back")
	told = hook.UntilAll(db, 1)
	require.Equal(t, map[string][]string{"/back": asked}, told.States)
	require.Empty(t, pushes(db, "--disabled"))
}

// A webhook that fails for too long is disabled, and the operator sees the reason. When enabled again it gets all
// missed events.
func TestFailingWebhookIsDisabled(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"give_up_after": "500ms", "min_attempts": 5})})
	hook := receivertest.Start(t, 1)
	hook.Behave("", receivertest.Act{Status: 500, Text: "out of paper"})
	var tasks []string
	for i, version := range hookWires {
		tasks = append(tasks, tell(r, version, "", "ask:0", fmt.Sprintf("%s/%d", hook.URL, i)))
	}
	awaitDisabled(db, len(tasks))
	why := regexp.MustCompile(`^(\d+) deliveries in a row failed, for \d+s: the receiver answered 500 Internal Server Error: out of paper$`)
	for _, row := range pushes(db, "--disabled") {
		found := why.FindStringSubmatch(row.DisabledFor)
		require.NotNil(t, found, row.DisabledFor)
		failures, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		require.GreaterOrEqual(t, failures, 5)
		require.Len(t, classes(db, row.TaskID), failures)
	}
	require.Equal(t, len(tasks), strings.Count(db.Operate("push", "list", "--disabled"), "out of paper"))

	// The receiver recovers, but gets nothing until an operator enables the webhook.
	tried := clustertest.One[int](db, "SELECT count(*) FROM holdfast.push_attempts")
	hook.Behave("")
	for i, version := range hookWires {
		tell(r, version, tasks[i], "well", "")
	}
	db.NothingIsDue()
	require.Equal(t, tried, clustertest.One[int](db, "SELECT count(*) FROM holdfast.push_attempts"))
	for _, n := range hook.Rest() {
		require.Equal(t, "working", n.State(t))
	}
	for _, id := range tasks {
		require.Contains(t, db.Operate("push", "enable", id), "due")
	}
	told := hook.UntilAll(db, len(tasks))
	for i := range tasks {
		require.Equal(t, asked, told.States["/"+strconv.Itoa(i)])
	}
	require.Empty(t, pushes(db, "--disabled"))
	require.Empty(t, pushes(db, "--failing"))
}

// The server sends nothing to a receiver with an invalid certificate. With a valid one it gets all events.
func TestReceiverCertificateIsVerified(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := certtest.NewAuthority(t)
	leaf := func(issuer *certtest.Certificate, ip string, until time.Duration, usage x509.ExtKeyUsage) *certtest.Certificate {
		return certtest.New(t, issuer, &x509.Certificate{
			Subject: pkix.Name{CommonName: "receiver"}, IPAddresses: []net.IP{net.ParseIP(ip)}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(until),
		})
	}
	write := func(name string, c *certtest.Certificate) (cert, key string) {
		cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
		require.NoError(t, os.WriteFile(cert, c.CertPEM, 0o600))
		require.NoError(t, os.WriteFile(key, c.KeyPEM, 0o600))
		return cert, key
	}
	known, _ := write("authority", authority)
	good, goodKey := write("good", leaf(authority, "127.0.0.1", time.Hour, x509.ExtKeyUsageServerAuth))
	bad := []struct {
		name string
		cert *certtest.Certificate
		why  string
	}{
		{"signed by itself", leaf(nil, "127.0.0.1", time.Hour, x509.ExtKeyUsageServerAuth), "unknown authority"},
		{"another's", leaf(authority, "192.0.2.1", time.Hour, x509.ExtKeyUsageServerAuth), "valid for 192.0.2.1, not 127.0.0.1"},
		{"expired", leaf(authority, "127.0.0.1", -time.Hour, x509.ExtKeyUsageServerAuth), "expired"},
		{"a client's", leaf(authority, "127.0.0.1", time.Hour, x509.ExtKeyUsageClientAuth), "incompatible key usage"},
	}
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"https_only": true}), Env: []string{"SSL_CERT_FILE=" + known}})
	for i, c := range bad {
		hook := receivertest.New(t, "https://", 1)
		hook.Setup.Cert, hook.Setup.Key = write(strconv.Itoa(i), c.cert)
		hook.Run()
		id := tell(r, hookWires[i%len(hookWires)], "", "echo:x", hook.URL)
		waittest.Eventually(t, c.name+" is retried", func() error {
			n := len(classes(db, id))
			return waittest.Unless(n > 1, "%d attempts", n)
		})
		require.Equal(t, "tls", clustertest.One[string](db, "SELECT string_agg(DISTINCT class, ' ') FROM holdfast.v_push_attempts WHERE task_id = $1", id), c.name)
		require.Contains(t, clustertest.One[string](db, "SELECT last_error FROM holdfast.v_push WHERE task_id = $1", id), c.why)
		require.Zero(t, hook.Tally(a2atest.Host(hook.Setup.Addrs[0])).Posts, c.name)
		hook.Kill()
		hook.Setup.Cert, hook.Setup.Key = good, goodKey
		hook.Run()
		require.Equal(t, []string{"working", "completed"}, hook.UntilAll(db, 1).States["/"], c.name)
	}
}

// Hosts that hang delay only their own webhooks, a few at a time. When they answer, they get all events.
func TestHangingHostsDelayNoOtherHost(t *testing.T) {
	t.Parallel()
	const hosts, each, perHost = 6, 12, 8
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"timeout": "2m", "concurrency_per_host": perHost})})
	hanging, good := receivertest.Start(t, hosts), receivertest.Start(t, 1)
	hanging.Behave("", receivertest.Act{Hold: true})
	for i := range each {
		for _, url := range hanging.URLs {
			tell(r, hookWires[i%len(hookWires)], "", "echo:x", fmt.Sprintf("%s/%d?%s", url, i, a2atest.Host(url)))
		}
	}
	open := func() error {
		for _, url := range hanging.URLs {
			if n := hanging.Tally(a2atest.Host(url)).Open; n != perHost {
				return fmt.Errorf("%d", n)
			}
		}
		return nil
	}
	waittest.Eventually(t, "the fair shares of the hosts hang", open)
	for i := range each {
		tell(r, hookWires[i%len(hookWires)], "", "echo:x", fmt.Sprintf("%s/%d", good.URL, i))
	}
	told := receivertest.NewStories(t)
	for ended := 0; ended < each; {
		if _, state := told.Add(good.Next("the good one gets everything")); state == "completed" {
			ended++
		}
	}
	// Meanwhile no other delivery has ended.
	require.NoError(t, open())
	require.Equal(t, []string{a2atest.Host(good.URL)}, clustertest.Column[string](db, `SELECT DISTINCT p.host FROM holdfast.v_push p
		JOIN holdfast.v_push_attempts a USING (task, config_id)`))

	hanging.Behave("")
	for _, states := range hanging.UntilAll(db, hosts*each).States {
		require.Equal(t, []string{"working", "completed"}, states)
	}
	for _, url := range hanging.URLs {
		require.Equal(t, perHost, hanging.Tally(a2atest.Host(url)).Most)
	}
	require.Equal(t, "delivered", clustertest.One[string](db, "SELECT string_agg(DISTINCT class, ' ') FROM holdfast.v_push_attempts"))
}

// With more hanging hosts than slots, they share the slots for silent hosts, and the good host has its own.
func TestMoreHangingHostsThanSlotsDelayNoOtherHost(t *testing.T) {
	t.Parallel()
	const hosts, each = 6, 4
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"timeout": "500ms", "concurrency": 4, "concurrency_per_host": 2})})
	hanging, good := receivertest.Start(t, hosts), receivertest.Start(t, 1)
	hanging.Behave("", receivertest.Act{Do: receivertest.NeverAnswers})
	for i := range each {
		for _, url := range hanging.URLs {
			tell(r, hookWires[i%len(hookWires)], "", "echo:x", fmt.Sprintf("%s/%d?%s", url, i, a2atest.Host(url)))
		}
	}
	for i := range each {
		tell(r, hookWires[i%len(hookWires)], "", "echo:x", fmt.Sprintf("%s/%d", good.URL, i))
	}
	for ended := 0; ended < each; {
		if good.Next("the good one gets everything").State(t) == "completed" {
			ended++
		}
	}
	require.Empty(t, clustertest.Column[string](db, `SELECT host FROM holdfast.v_push p JOIN holdfast.v_push_attempts a USING (task, config_id)
		WHERE p.host <> $1 AND a.class = 'delivered'`, a2atest.Host(good.URL)))
	hanging.Behave("")
	for _, states := range hanging.UntilAll(db, hosts*each).States {
		require.Equal(t, []string{"working", "completed"}, states)
	}
}

// One caller with webhooks at more hanging hosts than slots delays no other caller.
func TestHangingHostsOfOneCallerDelayNoOtherCaller(t *testing.T) {
	t.Parallel()
	const hosts, each, slots = 6, 4, 8
	db := clustertest.NewDB(t)
	config := clustertest.WithKeys + receivertest.Pushing(object{"timeout": "2m", "concurrency": slots, "concurrency_per_host": 4})
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	hanging, good := receivertest.Start(t, hosts), receivertest.Start(t, 1)
	hanging.Behave("", receivertest.Act{Hold: true})
	tell := func(key, url string) {
		r.Send(a2atest.V03, a2atest.Say("echo:x").Hooked(url, nil).With("X-API-Key", key))
	}
	create := func(subject string) string {
		return strings.TrimSpace(db.Operate("api-keys", "create", "--subject", subject))
	}
	alice, bob := create("alice"), create("bob")
	for i := range each {
		for _, url := range hanging.URLs {
			tell(alice, fmt.Sprintf("%s/%d?%s", url, i, a2atest.Host(url)))
		}
	}
	open := func() (n int) {
		for _, url := range hanging.URLs {
			n += hanging.Tally(a2atest.Host(url)).Open
		}
		return n
	}
	waittest.Eventually(t, "the fair share of the caller hangs", func() error {
		n := open()
		return waittest.Unless(n == slots/2, "%d", n)
	})
	for i := range each {
		tell(bob, fmt.Sprintf("%s/%d", good.URL, i))
	}
	told := receivertest.NewStories(t)
	for ended := 0; ended < each; {
		if _, state := told.Add(good.Next("bob gets everything")); state == "completed" {
			ended++
		}
	}
	require.Equal(t, slots/2, open())
	require.Equal(t, []string{"bob"}, clustertest.Column[string](db, `SELECT DISTINCT t.owner FROM holdfast.tasks t
		JOIN holdfast.v_push_attempts a ON a.task = t.id`))
	hanging.Behave("")
	for _, states := range hanging.UntilAll(db, hosts*each).States {
		require.Equal(t, []string{"working", "completed"}, states)
	}
}

// The server reads little of an endless answer, and stores none of it.
func TestEndlessAnswersOfReceivers(t *testing.T) {
	t.Parallel()
	const tasks = 8
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(nil)})
	hook := receivertest.Start(t, 1)
	peak := func() (kB int) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
		require.NoError(t, err)
		found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(raw)
		require.NotNil(t, found)
		kB, err = strconv.Atoi(string(found[1]))
		require.NoError(t, err)
		return kB
	}
	tell := func(round string) {
		for i := range tasks {
			tell(r, hookWires[i%len(hookWires)], "", "echo:x", fmt.Sprintf("%s/%s/%d", hook.URL, round, i))
		}
		for _, states := range hook.UntilAll(db, tasks).States {
			require.Equal(t, []string{"working", "completed"}, states)
		}
	}
	tell("usual")
	before := peak()
	for i := range tasks {
		hook.Behave(fmt.Sprintf("/flooded/%d", i), receivertest.Act{Do: receivertest.Floods, Status: 500}, receivertest.Act{Do: receivertest.Floods, Status: 200})
	}
	tell("flooded")
	require.Less(t, peak()-before, 64<<10, "the peak of its memory, in kB")
	require.Equal(t, 3*tasks, clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_push_attempts WHERE attempt_id IN (SELECT attempt_id FROM holdfast.v_push_attempts ORDER BY attempt_id OFFSET $1)", 2*tasks))
	for i := range tasks {
		path := fmt.Sprintf("/flooded/%d", i)
		waittest.Eventually(t, "the floods are dammed", func() error { return waittest.Unless(hook.Tally(path).Open == 0, "one flows") })
		taken := hook.Tally(path)
		require.Equal(t, 3, taken.Posts)
		require.Less(t, taken.Written, taken.Posts*(32<<20), "as much as the buffers of connections hold")
	}
}

// A receiver that is far behind gets the task as a whole first, then each event.
func TestLaggingReceiverGetsWholeTask(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"artifacts": true, "timeout": "1m"})})
	hook := receivertest.Start(t, 1)
	hook.Behave("", receivertest.Act{Hold: true})
	r.Send(a2atest.V10, a2atest.Say("chunks=1000 size=32 delay=20ms").Detached().Hooked(hook.URL, object{"token": "the token"}))
	id := clustertest.One[string](db, "SELECT id::text FROM holdfast.tasks")
	require.Equal(t, "working", hook.Next("the first").State(t))
	waittest.Eventually(t, "it lags", func() error {
		n := len(db.Chunks(id))
		// The first read may have up to 32 of them.
		return waittest.Unless(n > 2*32+8, "%d", n)
	})
	hook.Behave("")

	// The artifact as the receiver can assemble it. Events that were read together with the first one still come one
	// by one.
	type chunk struct{ Parts []a2atest.Part }
	known := []string{}
	snapshots, singles := 0, 0
	for state := ""; state != "canceled"; {
		n := hook.Next("the end")
		n.Claims(t)
		var doc struct {
			Task           *struct{ Artifacts []chunk }
			ArtifactUpdate *struct{ Artifact chunk }
		}
		require.NoError(t, json.Unmarshal(n.Body, &doc))
		switch {
		case doc.Task != nil:
			require.Len(t, doc.Task.Artifacts, 1)
			all := a2atest.Pieces(doc.Task.Artifacts[0].Parts, 32)
			require.GreaterOrEqual(t, len(all)-len(known), 32, "it was not far behind")
			require.Equal(t, known, all[:len(known)])
			known, snapshots = all, snapshots+1
			state = n.State(t)
		case doc.ArtifactUpdate != nil:
			known = append(known, doc.ArtifactUpdate.Artifact.Parts[0].Text)
			if snapshots == 0 {
				require.LessOrEqual(t, len(known), 32, "it is far behind")
				break
			}
			if singles++; singles == 5 {
				r.CancelOver(a2atest.V10, a2atest.Say().To(id))
			}
		default:
			state = n.State(t)
		}
	}
	require.Positive(t, snapshots)
	require.GreaterOrEqual(t, singles, 5)
	require.Equal(t, db.Chunks(id), known)
	clustertest.Indexed(t, known, len(known))
	db.NothingIsDue()
	require.Empty(t, hook.Rest())
}

// The secrets of a client's webhook go to its receiver only: into no log, answer, table or view, even if the receiver
// repeats them.
func TestWebhookSecretsDoNotLeak(t *testing.T) {
	t.Parallel()
	key := "c2VjcmV0IGtleSBvZiAzMiBieXRlcywgYXMgaXQgaXM="
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: receivertest.Hooked(object{"give_up_after": "1ms", "min_attempts": 3}), Env: []string{"HOLDFAST_SECRET_KEYS=" + key}})
	hook := receivertest.Start(t, 1)
	secrets := []string{key}
	secret := func() string {
		secrets = append(secrets, rand.Text())
		return secrets[len(secrets)-1]
	}
	var shown strings.Builder
	show := func(what []byte) { shown.Write(append(what, '\n')) }
	cases := []struct {
		*a2atest.Wire
		authentication func(credentials string) object
		header, prefix string
	}{
		{a2atest.V01, func(c string) object { return object{"schemes": []string{"Basic"}, "credentials": c} }, "Authorization", "Basic "},
		{a2atest.V03, func(c string) object { return object{"schemes": []string{"Bearer"}, "credentials": c} }, "Authorization", "Bearer "},
		{a2atest.V10, func(c string) object { return object{"scheme": "ApiKey", "credentials": c} }, "X-Api-Key", ""},
	}
	task := ""
	for _, c := range cases {
		token, credentials := secret(), secret()
		path := "/" + c.Version
		hook.Behave(path, receivertest.Act{Status: 401, Text: "I know " + token + " and " + credentials + "!"})
		more := object{"token": token, "authentication": c.authentication(credentials)}
		do := func(op a2atest.Op, a *a2atest.Args) (taskID string) {
			if !c.Has(op) {
				return ""
			}
			got := r.Finish(c.Wire, op, a)
			require.Zero(t, got.Code, got.Body)
			show([]byte(got.Body))
			return got.Task
		}
		var id string
		if c.Wire == a2atest.V01 { // 0.1 sets a webhook in a separate request, and the event comes after that
			id = do(a2atest.Send, a2atest.Say("ask:0"))
		} else {
			id = do(a2atest.Send, a2atest.Say("echo:x").Hooked(hook.URL+path, more))
		}
		hooked := a2atest.Say().To(id).Hooked(hook.URL+path, more)
		hooked.Config = "other"
		for _, op := range []a2atest.Op{a2atest.SetHook, a2atest.GetHook, a2atest.ListHooks} {
			do(op, hooked)
		}
		if c.Wire == a2atest.V01 {
			do(a2atest.Send, a2atest.Say("well").To(id))
		}
		do(a2atest.Get, a2atest.Say().To(id))
		n := hook.Next("an attempt")
		require.Equal(t, path, n.Path)
		require.Equal(t, token, n.Header.Get("X-A2A-Notification-Token"))
		require.Equal(t, c.prefix+credentials, n.Header.Get(c.header))
		db.NothingIsDue() // the webhook was disabled
		hook.Rest()
		show([]byte(db.Operate("push", "attempts", id, "-o", "json")))
		task = id
	}
	for _, verb := range [][]string{{"push", "attempts", task}, {"tasks", "get", task}, {"tasks", "events", task}, {"push", "list"}} {
		show([]byte(db.Operate(verb...)))
		show([]byte(db.Operate(append(verb, "-o", "json")...)))
	}
	rekeyed := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.URL, "HOLDFAST_SECRET_KEYS=" + key}, "secret-keys", "reseal")
	require.Zero(t, rekeyed.Code, rekeyed.Err)
	show([]byte(rekeyed.Out + rekeyed.Err))
	require.Contains(t, shown.String(), "I know *** and ***!", "the receiver's text is shown without the secret")
	metrics, err := http.Get(r.Admin + "/metrics")
	require.NoError(t, err)
	defer metrics.Body.Close()
	said, err := io.ReadAll(metrics.Body)
	require.NoError(t, err)
	show(said)
	for _, of := range clustertest.Column[string](db, "SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')") {
		for _, row := range clustertest.Column[string](db, "SELECT x::text FROM holdfast."+of+" x") {
			show([]byte(row))
		}
	}
	show([]byte(r.Log()))
	for _, s := range secrets {
		require.NotContains(t, shown.String(), s)
		require.NotContains(t, shown.String(), hex.EncodeToString([]byte(s)))
	}
}
