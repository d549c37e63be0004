package integration

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
)

// asked are the states of a task that asks, and is answered.
var asked = []string{"working", "input-required", "submitted", "working", "completed"}

// fine is how deliveries of them go.
var fine = []string{"delivered", "delivered", "delivered", "delivered", "delivered"}

// Whatever a receiver does, it is tried again until it accepts, each event before the next one; and once it has accepted,
// the event is not sent again.
func TestReceiversThatMisbehave(t *testing.T) {
	t.Parallel()
	elsewhere := receive(t, 1)
	away := func(status int) act {
		return act{Status: status, Header: http.Header{"Location": {elsewhere.url}}, Text: "over there"}
	}
	status := func(status int) act { return act{Status: status, Text: "because"} }
	ok := act{}
	long := "ask:" + strings.Repeat("and then? ", 200_000) // beyond what the buffers of a connection hold
	for_ := func(n int, class string) []string { return append(slices.Repeat([]string{class}, n), fine...) }
	cases := []struct {
		name   string
		script string
		acts   []act
		want   []string // what comes of the attempts
		last   string   // of the errors
	}{
		{
			name: "flaps", last: "the receiver answered 500 Internal Server Error: because",
			acts: []act{status(500), ok, status(502), status(503), {Status: 202}, ok, status(504), status(599), status(500), {Status: 200, Text: "thanks"}, ok},
			want: []string{"server", "delivered", "server", "server", "delivered", "delivered", "server", "server", "server", "delivered", "delivered"},
		},
		{
			name: "refuses", last: "the receiver answered 429 Too Many Requests: because",
			acts: []act{status(400), status(401), status(403), status(404), status(408), status(429), ok},
			want: append([]string{"client", "client", "client", "client", "throttled", "throttled"}, fine...),
		},
		{name: "never answers", acts: []act{{Do: neverAnswers}, ok}, want: for_(1, "timeout"), last: "deadline exceeded"},
		{name: "never ends its headers", acts: []act{{Do: hangsInHeaders}, ok}, want: for_(1, "timeout"), last: "deadline exceeded"},
		{name: "accepts and never ends its body", acts: []act{{Do: hangsInBody, Status: 200}}, want: fine},
		{
			name: "fails and never ends its body", acts: []act{{Do: hangsInBody, Status: 500, Text: "because"}, ok},
			want: for_(1, "server"), last: "the receiver answered 500 Internal Server Error: because",
		},
		{
			name: "redirects", acts: []act{away(301), away(302), away(303), away(307), away(308), ok},
			want: for_(5, "redirect"), last: "the receiver answered 308 Permanent Redirect; redirects are not followed",
		},
		{name: "resets", acts: []act{{Do: resets}, {Do: resets}, ok}, want: for_(2, "network"), last: "connection reset by peer"},
		{name: "resets before it has read", script: long, acts: []act{{Do: resetsUnread}, {Do: resetsUnread}, ok}, want: for_(2, "network")},
		{name: "closes", acts: []act{{Do: closes}, ok}, want: for_(1, "network"), last: "EOF"},
		{name: "is not HTTP", acts: []act{{Do: speaksOtherwise}, ok}, want: for_(1, "network"), last: "malformed HTTP"},
	}
	db := newDB(t)
	// Nobody else is to be taken for one who never answers.
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(object{"timeout": "5s", "coalesce_after": 0})})
	t.Cleanup(db.sound)
	hook := receive(t, len(cases))
	tasks := make([]string, len(cases))
	for i, c := range cases {
		hook.behave(hostOf(hook.urls[i]), c.acts...)
		if c.script == "" {
			c.script = "ask:0"
		}
		tasks[i] = r.tell(hookVersions[i%len(hookVersions)], "", c.script, fmt.Sprintf("%s/%d", hook.urls[i], i))
	}
	for i := range cases {
		r.tell(hookVersions[i%len(hookVersions)], tasks[i], "well", "")
	}
	told := hook.untilAll(db, len(cases))
	for i, c := range cases {
		require.Equal(t, asked, told.states["/"+strconv.Itoa(i)], c.name)
		require.Equal(t, c.want, db.classes(tasks[i]), c.name)
		// Only where it is the receiver that ends an exchange does it see that end before what comes next.
		if !slices.ContainsFunc(c.acts, func(a act) bool { return a.Do != answers }) {
			require.Equal(t, 1, hook.tally(hostOf(hook.urls[i])).Most, "%s: one at a time", c.name)
		}
		if c.last == "" {
			continue
		}
		require.Contains(t, one[string](db, `SELECT error FROM holdfast.v_push_attempts
			WHERE task_id = $1 AND error IS NOT NULL ORDER BY attempt_id DESC LIMIT 1`, tasks[i]), c.last, c.name)
	}
	require.Zero(t, elsewhere.tally("").Posts)
	require.Empty(t, elsewhere.rest())
}

// A receiver that says when it wants to be asked again is left alone until then, whatever happens to the task.
func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	cases := []act{
		{Status: 503, Header: http.Header{"Retry-After": {"2"}}},
		{Status: 429, Header: http.Header{"Retry-After": {"1"}}},
		{Status: 503, RetryDate: 3 * time.Second},
	}
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(nil)})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	tasks := make([]string, len(cases))
	for i, c := range cases {
		path := "/" + hookVersions[i]
		hook.behave(path, c, act{})
		tasks[i] = r.tell(hookVersions[i], "", "ask:0", hook.url+path)
		r.tell(hookVersions[i], tasks[i], "well", "")
	}
	came := map[string][]*notification{}
	for ended := 0; ended < len(cases); {
		n := hook.next("the end of every task")
		came[n.Path] = append(came[n.Path], n)
		if n.state(t) == "completed" {
			ended++
		}
	}
	for i := range cases {
		all := came["/"+hookVersions[i]]
		require.Len(t, all, 1+len(asked))
		first, second := all[0], all[1]
		require.Equal(t, first.id(), second.id())
		seconds, err := strconv.Atoi(first.RetryAfter)
		until := first.At.Add(time.Duration(seconds) * time.Second)
		if err != nil {
			until, err = http.ParseTime(first.RetryAfter)
			require.NoError(t, err)
		}
		require.False(t, second.At.Before(until), "%s: again at %v, and not before %v", first.Path, second.At, until)
	}
}

// pushes asks for the webhooks as an operator does.
func (l *ledger) pushes(args ...string) (rows []struct {
	TaskID      string `json:"task_id"`
	ConfigID    string `json:"config_id"`
	State       string
	Behind      int
	DisabledFor string `json:"disabled_for"`
},
) {
	l.t.Helper()
	require.NoError(l.t, json.Unmarshal([]byte(l.operate(append([]string{"push", "list", "-o", "json"}, args...)...)), &rows))
	return rows
}

// disabled waits until so many webhooks are.
func (l *ledger) disabled(n int) {
	l.t.Helper()
	eventually(l.t, "webhooks are disabled", func() error {
		is := one[int](l, "SELECT count(*) FROM holdfast.v_push WHERE disabled_at IS NOT NULL")
		return unless(is == n, "%d", is)
	})
}

// operate runs a verb that must succeed on the database.
func (l *ledger) operate(args ...string) string {
	l.t.Helper()
	res := command(l.t, l.t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + l.url}, args...)
	require.Zero(l.t, res.code, res.err)
	return res.out
}

// A receiver that is gone is asked no more, and the operator sees why. Its client may set it anew.
func TestAReceiverThatIsGone(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(nil)})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	hook.behave("/gone", act{Status: http.StatusGone})
	id := r.tell("0.3", "", "ask:0", hook.url+"/gone")
	db.disabled(1)

	// Another one shows when all that follows has been delivered.
	set := func(configID, path string) {
		r.call("tasks/pushNotificationConfig/set", object{
			"taskId": id, "pushNotificationConfig": object{"id": configID, "url": hook.url + path},
		})
	}
	set("other", "/other")
	r.tell("0.3", id, "well", "")
	told := hook.untilAll(db, 1)
	require.Equal(t, asked[2:], told.states["/other"])
	require.Equal(t, asked[:1], told.states["/gone"])
	require.Equal(t, 1, hook.tally("/gone").Posts)

	const why = "the receiver answered 410 Gone"
	rows := db.pushes("--disabled")
	require.Len(t, rows, 1)
	require.Equal(t, []any{id, id, "disabled", why}, []any{rows[0].TaskID, rows[0].ConfigID, rows[0].State, rows[0].DisabledFor})
	require.Greater(t, rows[0].Behind, 4)
	require.Contains(t, db.operate("push", "list"), why)
	require.Equal(t, []string{why}, column[string](db, "SELECT disabled_for FROM holdfast.v_push WHERE disabled_at IS NOT NULL"))
	require.Equal(t, 1, one[int](db, "SELECT last_status - 409 FROM holdfast.v_push WHERE config_id = $1", id))

	set("", "/back")
	told = hook.untilAll(db, 1)
	require.Equal(t, map[string][]string{"/back": asked}, told.states)
	require.Empty(t, db.pushes("--disabled"))
}

// A receiver that has failed for too long is given up, and the operator sees why. Once it is enabled it gets all that it has
// missed.
func TestAReceiverThatIsGivenUp(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(object{"give_up_after": "500ms", "min_attempts": 5})})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	hook.behave("", act{Status: 500, Text: "out of paper"})
	var tasks []string
	for i, version := range hookVersions {
		tasks = append(tasks, r.tell(version, "", "ask:0", fmt.Sprintf("%s/%d", hook.url, i)))
	}
	db.disabled(len(tasks))
	why := regexp.MustCompile(`^(\d+) deliveries in a row failed, for \d+s: the receiver answered 500 Internal Server Error: out of paper$`)
	for _, row := range db.pushes("--disabled") {
		found := why.FindStringSubmatch(row.DisabledFor)
		require.NotNil(t, found, row.DisabledFor)
		failures, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		require.GreaterOrEqual(t, failures, 5)
		require.Len(t, db.classes(row.TaskID), failures)
	}
	require.Equal(t, len(tasks), strings.Count(db.operate("push", "list", "--disabled"), "out of paper"))

	// It gets well, and hears of nothing until somebody says so.
	tried := one[int](db, "SELECT count(*) FROM holdfast.push_attempts")
	hook.behave("")
	for i, version := range hookVersions {
		r.tell(version, tasks[i], "well", "")
	}
	db.nothingIsDue()
	require.Equal(t, tried, one[int](db, "SELECT count(*) FROM holdfast.push_attempts"))
	for _, n := range hook.rest() {
		require.Equal(t, "working", n.state(t))
	}
	for _, id := range tasks {
		require.Contains(t, db.operate("push", "enable", id), "due")
	}
	told := hook.untilAll(db, len(tasks))
	for i := range tasks {
		require.Equal(t, asked, told.states["/"+strconv.Itoa(i)])
	}
	require.Empty(t, db.pushes("--disabled"))
	require.Empty(t, db.pushes("--failing"))
}

// Nothing is sent to a receiver whose certificate is not good. When it has a good one, all arrives.
func TestCertificatesOfReceivers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := newAuthority(t)
	leaf := func(issuer *certificate, ip string, until time.Duration, usage x509.ExtKeyUsage) *certificate {
		return newCertificate(t, issuer, &x509.Certificate{
			Subject: pkix.Name{CommonName: "receiver"}, IPAddresses: []net.IP{net.ParseIP(ip)}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(until),
		})
	}
	write := func(name string, c *certificate) (cert, key string) {
		cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
		require.NoError(t, os.WriteFile(cert, c.certPEM, 0o600))
		require.NoError(t, os.WriteFile(key, c.keyPEM, 0o600))
		return cert, key
	}
	known, _ := write("authority", authority)
	good, goodKey := write("good", leaf(authority, "127.0.0.1", time.Hour, x509.ExtKeyUsageServerAuth))
	bad := []struct {
		name string
		cert *certificate
		why  string
	}{
		{"signed by itself", leaf(nil, "127.0.0.1", time.Hour, x509.ExtKeyUsageServerAuth), "unknown authority"},
		{"another's", leaf(authority, "192.0.2.1", time.Hour, x509.ExtKeyUsageServerAuth), "valid for 192.0.2.1, not 127.0.0.1"},
		{"expired", leaf(authority, "127.0.0.1", -time.Hour, x509.ExtKeyUsageServerAuth), "expired"},
		{"a client's", leaf(authority, "127.0.0.1", time.Hour, x509.ExtKeyUsageClientAuth), "incompatible key usage"},
	}
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(object{"https_only": true}), Env: []string{"SSL_CERT_FILE=" + known}})
	t.Cleanup(db.sound)
	for i, c := range bad {
		hook := newReceiver(t, "https://", 1)
		hook.setup.Cert, hook.setup.Key = write(strconv.Itoa(i), c.cert)
		hook.run()
		id := r.tell(hookVersions[i%len(hookVersions)], "", "echo:x", hook.url)
		eventually(t, c.name+" is tried again", func() error {
			n := len(db.classes(id))
			return unless(n > 1, "%d attempts", n)
		})
		require.Equal(t, "tls", one[string](db, "SELECT string_agg(DISTINCT class, ' ') FROM holdfast.v_push_attempts WHERE task_id = $1", id), c.name)
		require.Contains(t, one[string](db, "SELECT last_error FROM holdfast.v_push WHERE task_id = $1", id), c.why)
		require.Zero(t, hook.tally(hostOf(hook.setup.Addrs[0])).Posts, c.name)
		hook.kill()
		hook.setup.Cert, hook.setup.Key = good, goodKey
		hook.run()
		require.Equal(t, []string{"working", "completed"}, hook.untilAll(db, 1).states["/"], c.name)
	}
}

// Hosts that hang hold up their own webhooks, a few at a time, and nobody else's. When they answer after all, nothing was lost.
func TestHangingHostsStallNobodyElse(t *testing.T) {
	t.Parallel()
	const hosts, each, perHost = 6, 12, 8
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(object{"timeout": "2m", "concurrency_per_host": perHost})})
	t.Cleanup(db.sound)
	hanging, good := receive(t, hosts), receive(t, 1)
	hanging.behave("", act{Hold: true})
	for i := range each {
		for _, url := range hanging.urls {
			r.tell(hookVersions[i%len(hookVersions)], "", "echo:x", fmt.Sprintf("%s/%d?%s", url, i, hostOf(url)))
		}
	}
	open := func() error {
		for _, url := range hanging.urls {
			if n := hanging.tally(hostOf(url)).Open; n != perHost {
				return fmt.Errorf("%d", n)
			}
		}
		return nil
	}
	eventually(t, "as many hang as may", open)
	for i := range each {
		r.tell(hookVersions[i%len(hookVersions)], "", "echo:x", fmt.Sprintf("%s/%d", good.url, i))
	}
	told := newStories(t)
	for ended := 0; ended < each; {
		if _, state := told.add(good.next("the good one gets everything")); state == "completed" {
			ended++
		}
	}
	// Meanwhile nothing else has come to an end.
	require.NoError(t, open())
	require.Equal(t, []string{hostOf(good.url)}, column[string](db, `SELECT DISTINCT p.host FROM holdfast.v_push p
		JOIN holdfast.v_push_attempts a USING (task, config_id)`))

	hanging.behave("")
	for _, states := range hanging.untilAll(db, hosts*each).states {
		require.Equal(t, []string{"working", "completed"}, states)
	}
	for _, url := range hanging.urls {
		require.Equal(t, perHost, hanging.tally(hostOf(url)).Most)
	}
	require.Equal(t, "delivered", one[string](db, "SELECT string_agg(DISTINCT class, ' ') FROM holdfast.v_push_attempts"))
}

// Where more hosts hang than there are slots, they take turns, and the good one has its own.
func TestMoreHangingHostsThanSlots(t *testing.T) {
	t.Parallel()
	const hosts, each = 6, 4
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(object{"timeout": "500ms", "concurrency": 4, "concurrency_per_host": 2})})
	t.Cleanup(db.sound)
	hanging, good := receive(t, hosts), receive(t, 1)
	hanging.behave("", act{Do: neverAnswers})
	for i := range each {
		for _, url := range hanging.urls {
			r.tell(hookVersions[i%len(hookVersions)], "", "echo:x", fmt.Sprintf("%s/%d?%s", url, i, hostOf(url)))
		}
	}
	for i := range each {
		r.tell(hookVersions[i%len(hookVersions)], "", "echo:x", fmt.Sprintf("%s/%d", good.url, i))
	}
	for ended := 0; ended < each; {
		if good.next("the good one gets everything").state(t) == "completed" {
			ended++
		}
	}
	require.Empty(t, column[string](db, `SELECT host FROM holdfast.v_push p JOIN holdfast.v_push_attempts a USING (task, config_id)
		WHERE p.host <> $1 AND a.class = 'delivered'`, hostOf(good.url)))
	hanging.behave("")
	for _, states := range hanging.untilAll(db, hosts*each).states {
		require.Equal(t, []string{"working", "completed"}, states)
	}
}

// One caller's webhooks at more hosts that hang than there are slots hold up those of no other caller.
func TestHangingHostsOfOneCallerStallNoOther(t *testing.T) {
	t.Parallel()
	const hosts, each, slots = 6, 4, 8
	db := newDB(t)
	config := withKeys + pushing(object{"timeout": "2m", "concurrency": slots, "concurrency_per_host": 4})
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: config})
	t.Cleanup(db.sound)
	hanging, good := receive(t, hosts), receive(t, 1)
	hanging.behave("", act{Hold: true})
	tell := func(key, url string) {
		p := v03.params("", "echo:x")
		p["configuration"] = object{"pushNotificationConfig": hookOf(url)}
		got, err := ask(short(t, patience), r.url, request(v03.send, p), "X-API-Key", key)
		require.NoError(t, err)
		require.Nil(t, got.Err, "%s", got.Body)
	}
	create := func(subject string) string {
		return strings.TrimSpace(db.operate("keys", "create", "--subject", subject))
	}
	alice, bob := create("alice"), create("bob")
	for i := range each {
		for _, url := range hanging.urls {
			tell(alice, fmt.Sprintf("%s/%d?%s", url, i, hostOf(url)))
		}
	}
	open := func() (n int) {
		for _, url := range hanging.urls {
			n += hanging.tally(hostOf(url)).Open
		}
		return n
	}
	eventually(t, "as many hang as may", func() error {
		n := open()
		return unless(n == slots/2, "%d", n)
	})
	for i := range each {
		tell(bob, fmt.Sprintf("%s/%d", good.url, i))
	}
	told := newStories(t)
	for ended := 0; ended < each; {
		if _, state := told.add(good.next("bob gets everything")); state == "completed" {
			ended++
		}
	}
	require.Equal(t, slots/2, open())
	require.Equal(t, []string{"bob"}, column[string](db, `SELECT DISTINCT t.owner FROM holdfast.tasks t
		JOIN holdfast.v_push_attempts a ON a.task = t.id`))
	hanging.behave("")
	for _, states := range hanging.untilAll(db, hosts*each).states {
		require.Equal(t, []string{"working", "completed"}, states)
	}
}

// Of an answer without end little is read, and none of it is kept.
func TestAnswersWithoutEnd(t *testing.T) {
	t.Parallel()
	const tasks = 8
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(nil)})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	peak := func() (kB int) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
		require.NoError(t, err)
		found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(raw)
		require.NotNil(t, found)
		kB, err = strconv.Atoi(string(found[1]))
		require.NoError(t, err)
		return kB
	}
	tell := func(round string) {
		for i := range tasks {
			r.tell(hookVersions[i%len(hookVersions)], "", "echo:x", fmt.Sprintf("%s/%s/%d", hook.url, round, i))
		}
		for _, states := range hook.untilAll(db, tasks).states {
			require.Equal(t, []string{"working", "completed"}, states)
		}
	}
	tell("usual")
	before := peak()
	for i := range tasks {
		hook.behave(fmt.Sprintf("/flooded/%d", i), act{Do: floods, Status: 500}, act{Do: floods, Status: 200})
	}
	tell("flooded")
	require.Less(t, peak()-before, 64<<10, "the peak of its memory, in kB")
	require.Equal(t, 3*tasks, one[int](db, "SELECT count(*) FROM holdfast.v_push_attempts WHERE attempt_id IN (SELECT attempt_id FROM holdfast.v_push_attempts ORDER BY attempt_id OFFSET $1)", 2*tasks))
	for i := range tasks {
		path := fmt.Sprintf("/flooded/%d", i)
		eventually(t, "the floods are dammed", func() error { return unless(hook.tally(path).Open == 0, "one flows") })
		taken := hook.tally(path)
		require.Equal(t, 3, taken.Posts)
		require.Less(t, taken.Written, taken.Posts*(32<<20), "no more than connections have buffers")
	}
}

// A receiver that is far behind gets the task as it stands, and from there on each event.
func TestAReceiverThatLags(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(object{"artifacts": true, "timeout": "1m"})})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	hook.behave("", act{Hold: true})
	sent := r.current("SendMessage", object{
		"message":       message10("", "chunks=1000 size=16 delay=20ms"),
		"configuration": object{"returnImmediately": true, "taskPushNotificationConfig": hookOf10(hook.url)},
	})
	require.Nil(t, sent.Err, "%s", sent.Body)
	id := one[string](db, "SELECT id::text FROM holdfast.tasks")
	require.Equal(t, "working", hook.next("the first").state(t))
	eventually(t, "it lags", func() error {
		n := len(db.chunks(id))
		return unless(n > 40, "%d", n)
	})
	hook.behave("")

	// What a receiver knows of the artifact, if it puts together what it is told. What had been read together with the
	// first event still comes singly.
	type chunk struct{ Parts []part }
	known := []string{}
	snapshots, singles := 0, 0
	for state := ""; state != "canceled"; {
		n := hook.next("the end")
		n.claims(t)
		var doc struct {
			Task           *struct{ Artifacts []chunk }
			ArtifactUpdate *struct{ Artifact chunk }
		}
		require.NoError(t, json.Unmarshal(n.Body, &doc))
		switch {
		case doc.Task != nil:
			require.Len(t, doc.Task.Artifacts, 1)
			var all []string
			for _, p := range doc.Task.Artifacts[0].Parts {
				all = append(all, p.Text)
			}
			require.GreaterOrEqual(t, len(all)-len(known), 32, "it was not far behind")
			require.Equal(t, known, all[:len(known)])
			known, snapshots = all, snapshots+1
			state = n.state(t)
		case doc.ArtifactUpdate != nil:
			known = append(known, doc.ArtifactUpdate.Artifact.Parts[0].Text)
			if snapshots == 0 {
				require.LessOrEqual(t, len(known), 32, "it is far behind")
				break
			}
			if singles++; singles == 5 {
				r.current("CancelTask", object{"id": id})
			}
		default:
			state = n.state(t)
		}
	}
	require.Positive(t, snapshots)
	require.GreaterOrEqual(t, singles, 5)
	require.Equal(t, db.chunks(id), known)
	indexed(t, known, len(known))
	db.nothingIsDue()
	require.Empty(t, hook.rest())
}

// What a client gives for its receiver to know us by goes there and nowhere else: into no log, no answer, no table and no
// view, even if the receiver says it back.
func TestSecretsOfWebhooksStayInside(t *testing.T) {
	t.Parallel()
	key := "c2VjcmV0IGtleSBvZiAzMiBieXRlcywgYXMgaXQgaXM="
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(object{"give_up_after": "1ms", "min_attempts": 3}), Env: []string{"HOLDFAST_SECRET_KEYS=" + key}})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	secrets := []string{key}
	secret := func() string {
		secrets = append(secrets, rand.Text())
		return secrets[len(secrets)-1]
	}
	var shown strings.Builder
	show := func(what []byte) { shown.Write(append(what, '\n')) }
	post := func(version, method string, params object) *answer {
		a, err := ask(short(t, patience), r.url, request(method, params), "A2A-Version", version)
		require.NoError(t, err)
		require.Nil(t, a.Err, "%s", a.Body)
		show(a.Body)
		return a
	}
	cases := map[string]struct {
		authentication func(credentials string) object
		header, prefix string
	}{
		"0.1": {func(c string) object { return object{"schemes": []string{"Basic"}, "credentials": c} }, "Authorization", "Basic "},
		"0.3": {func(c string) object { return object{"schemes": []string{"Bearer"}, "credentials": c} }, "Authorization", "Bearer "},
		"1.0": {func(c string) object { return object{"scheme": "ApiKey", "credentials": c} }, "X-Api-Key", ""},
	}
	task := ""
	for version, c := range cases {
		token, credentials := secret(), secret()
		path := "/" + version
		hook.behave(path, act{Status: 401, Text: "I know " + token + " and " + credentials + "!"})
		config := object{"url": hook.url + path, "token": token, "authentication": c.authentication(credentials)}
		var id string
		switch version {
		case "0.1":
			p := v01.params("", "ask:0")
			id = post(version, v01.send, p).taskID(t)
			post(version, "tasks/pushNotification/set", object{"id": id, "pushNotificationConfig": config})
			post(version, "tasks/pushNotification/get", object{"id": id})
			post(version, v01.send, v01.params(id, "well"))
			post(version, "tasks/get", object{"id": id})
		case "0.3":
			p := v03.params("", "echo:x")
			p["configuration"] = object{"pushNotificationConfig": config}
			id = post(version, v03.send, p).taskID(t)
			config["id"] = "other"
			post(version, "tasks/pushNotificationConfig/set", object{"taskId": id, "pushNotificationConfig": config})
			post(version, "tasks/pushNotificationConfig/get", object{"id": id})
			post(version, "tasks/pushNotificationConfig/list", object{"id": id})
			post(version, "tasks/get", object{"id": id})
		case "1.0":
			id = post(version, "SendMessage", object{"message": message10("", "echo:x"), "configuration": object{"taskPushNotificationConfig": config}}).taskID(t)
			config["id"], config["taskId"] = "other", id
			post(version, "CreateTaskPushNotificationConfig", config)
			post(version, "GetTaskPushNotificationConfig", object{"taskId": id, "id": "other"})
			post(version, "ListTaskPushNotificationConfigs", object{"taskId": id})
			post(version, "GetTask", object{"id": id})
		}
		n := hook.next("an attempt")
		require.Equal(t, path, n.Path)
		require.Equal(t, token, n.Header.Get("X-A2A-Notification-Token"))
		require.Equal(t, c.prefix+credentials, n.Header.Get(c.header))
		db.nothingIsDue() // it was given up
		hook.rest()
		show([]byte(db.operate("push", "attempts", id, "-o", "json")))
		task = id
	}
	for _, verb := range [][]string{{"push", "attempts", task}, {"tasks", "get", task}, {"tasks", "events", task}, {"push", "list"}} {
		show([]byte(db.operate(verb...)))
		show([]byte(db.operate(append(verb, "-o", "json")...)))
	}
	rekeyed := command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.url, "HOLDFAST_SECRET_KEYS=" + key}, "push", "rekey")
	require.Zero(t, rekeyed.code, rekeyed.err)
	show([]byte(rekeyed.out + rekeyed.err))
	require.Contains(t, shown.String(), "I know *** and ***!", "what a receiver says is shown, but for that")
	metrics, err := http.Get(r.admin + "/metrics")
	require.NoError(t, err)
	defer metrics.Body.Close()
	said, err := io.ReadAll(metrics.Body)
	require.NoError(t, err)
	show(said)
	for _, of := range column[string](db, "SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')") {
		for _, row := range column[string](db, "SELECT x::text FROM holdfast."+of+" x") {
			show([]byte(row))
		}
	}
	show(r.logs.all())
	for _, s := range secrets {
		require.NotContains(t, shown.String(), s)
		require.NotContains(t, shown.String(), hex.EncodeToString([]byte(s)))
	}
}

// taskID is that of a task, or of the task in an answer of 1.0.
func (a *answer) taskID(t testing.TB) string {
	t.Helper()
	var res struct {
		ID   string
		Task struct{ ID string }
	}
	require.NoError(t, json.Unmarshal(a.Result, &res))
	return res.ID + res.Task.ID
}
