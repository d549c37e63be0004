package store

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// manual is docs/sql.md. These tests run its queries, compare the answers and, with -update, rewrite them.
type manual struct{ text string }

const manualFile = "../../docs/sql.md"

func readManual(t testing.TB) *manual {
	t.Helper()
	text := storetest.Must(os.ReadFile(manualFile))(t)
	return &manual{string(text)}
}

// section is the text below a heading of level two.
func (m *manual) section(heading string) string {
	_, after, _ := strings.Cut(m.text, "\n## "+heading+"\n")
	section, _, _ := strings.Cut(after, "\n## ")
	return section
}

var fence = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

func (m *manual) blocks(heading, language string) (out []string) {
	for _, b := range fence.FindAllStringSubmatch(m.section(heading), -1) {
		if b[1] == language {
			out = append(out, b[2])
		}
	}
	return out
}

// replace fails if a text of the manual differs from the expected one; with -update it replaces the text.
func (m *manual) replace(t *testing.T, is, should, what string) {
	t.Helper()
	if !*update {
		require.Equal(t, should, is, "%s in docs/sql.md; -update rewrites it", what)
		return
	}
	require.Equal(t, 1, strings.Count(m.text, is), what)
	m.text = strings.Replace(m.text, is, should, 1)
}

func (m *manual) save(t *testing.T) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(manualFile, []byte(m.text), 0o600))
	}
}

// The manual's tables of columns come from the comments in the database.
func TestTheManualHasTheColumns(t *testing.T) { // not parallel: like the next test, it may write the manual
	f := newFixture(t)
	m := readManual(t)
	_, lines := query(t, f.conn(), `
		SELECT c.relname, obj_description(c.oid, 'pg_class'), a.attname, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)
		  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		 WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'v' AND c.relname LIKE 'v\_%' AND a.attnum > 0
		 ORDER BY c.relname, a.attnum`)
	tables, comments := map[string]string{}, map[string]string{}
	row := func(l []string) string {
		typ := strings.ReplaceAll(l[3], "timestamp with time zone", "timestamptz")
		return fmt.Sprintf("| `%s` %s | %s |\n", l[2], typ, l[4])
	}
	const head = "| column | meaning |\n|---|---|\n"
	shared := map[string]string{}
	for _, l := range lines {
		view, column := l[0], l[2]
		require.NotContains(t, l, "", "%s.%s has no comment", view, column)
		comments[view] = l[1]
		switch {
		case !slices.Contains([]string{"v_workers", "v_remote_workers", "v_agents", "v_outages", "v_names", "v_api_keys", "v_audit"}, view) &&
			slices.Contains([]string{"task", "task_id", "agent", "tenant", "owner", "context_id"}, column):
			shared[view] += row(l)
		default:
			tables[view] += row(l)
		}
	}
	for view, rows := range shared {
		require.Equal(t, shared["v_tasks"], rows, "%s begins like the others", view)
	}
	require.Len(t, tables, 23)
	require.Len(t, shared, 16)
	tables["All of them"], comments["All of them"] = shared["v_tasks"], "All but `v_workers`, `v_remote_workers`, `v_agents`, `v_outages`, `v_names`, `v_api_keys` and `v_audit` begin with these columns:"
	for view, rows := range tables {
		heading := "\n### " + view + "\n"
		require.Contains(t, m.text, heading)
		_, after, _ := strings.Cut(m.text, heading)
		is, _, _ := strings.Cut(after, "\n#")
		m.replace(t, heading+is, heading+"\n"+comments[view]+"\n\n"+head+rows, "the columns of "+view)
	}
	m.save(t)
}

// The manual's questions are asked with the rights of a reader, and the answers must be those of the manual.
func TestTheManualsQuestions(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, storetest.Partitions(t.Context(), f.url, time.Now().AddDate(0, 0, -6), time.Now()))
	b := newBook(f)
	b.write()
	m := readManual(t)
	c := f.conn()
	needReader(t, c)
	tx := storetest.Must(c.Begin(t.Context()))(t)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	b.date(tx)
	var yesterday, today string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT (current_date - 1)::text, current_date::text").Scan(&yesterday, &today))
	f.ok(tx.Exec(t.Context(), "SET LOCAL ROLE holdfast_reader"))

	questions := strings.Split(m.section("Questions"), "\n### ")[1:]
	require.GreaterOrEqual(t, len(questions), 10)
	for _, q := range questions {
		heading, _, _ := strings.Cut(q, "\n")
		blocks := fence.FindAllStringSubmatch(q, -1)
		require.Len(t, blocks, 2, heading)
		require.Equal(t, []string{"sql", "text"}, []string{blocks[0][1], blocks[1][1]}, heading)
		columns, lines := query(t, tx, blocks[0][2])
		require.NotEmpty(t, lines, heading)
		answer := strings.NewReplacer(yesterday, "2026-03-02", today, "2026-03-03").Replace(aligned(columns, lines))
		m.replace(t, blocks[0][2]+"```\n\n"+blocks[1][0], blocks[0][2]+"```\n\n```text\n"+answer+"```", heading)
	}
	m.save(t)
}

// The questions of docs/troubleshoot.md are asked with the rights of a reader, and have answers.
func TestTroubleshootingQuestions(t *testing.T) {
	f := parallel(t)
	newBook(f).write()
	page := storetest.Must(os.ReadFile("../../docs/troubleshoot.md"))(t)
	c := f.conn()
	needReader(t, c)
	f.ok(c.Exec(t.Context(), "SET ROLE holdfast_reader"))
	asked := 0
	for _, b := range fence.FindAllStringSubmatch(string(page), -1) {
		if b[1] == "sql" {
			asked++
			_, lines := query(t, c, b[2])
			require.NotEmpty(t, lines, b[2])
		}
	}
	require.Greater(t, asked, 4)
}

func TestTheREADMECountsTheQuestions(t *testing.T) {
	t.Parallel()
	readme := storetest.Must(os.ReadFile("../../README.md"))(t)
	require.Contains(t, string(readme), fmt.Sprintf("%d worked questions", len(readManual(t).blocks("Questions", "sql"))))
}

// aligned formats an answer much as psql does.
func aligned(columns []string, lines [][]string) string {
	width := make([]int, len(columns))
	table := append([][]string{columns}, lines...)
	for _, l := range table {
		for i, v := range l {
			width[i] = max(width[i], utf8.RuneCountInString(v))
		}
	}
	var out strings.Builder
	for n, l := range table {
		var row strings.Builder
		for i, v := range l {
			if i > 0 {
				row.WriteString(" | ")
			}
			row.WriteString(v + strings.Repeat(" ", width[i]-utf8.RuneCountInString(v)))
		}
		fmt.Fprintln(&out, strings.TrimRight(row.String(), " "))
		if n == 0 {
			for i, w := range width {
				if i > 0 {
					out.WriteString("-+-")
				}
				out.WriteString(strings.Repeat("-", w))
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// book is a small data set, written through the store, for the manual's questions.
type book struct {
	*fixture
	workers map[string]task.ID
	stories []*story
}

// story is one task. All its events are written at once, and dated afterwards.
type story struct {
	b     *book
	h     *task.Task
	p     *pen
	open  bool // its times count from now; otherwise from the beginning of yesterday
	now   time.Duration
	times []time.Duration // of its events
	due   time.Duration   // of its queue row
	asked time.Duration   // when the cancel was requested
	held  map[task.Attempt]time.Duration
}

func newBook(f *fixture) *book {
	b := &book{fixture: f, workers: map[string]task.ID{}}
	for name, ttl := range map[string]time.Duration{"web-1/1042": time.Hour, "web-2/988": time.Hour, "web-2/731": 0} {
		id := NewID()
		require.NoError(f.t, f.Register(f.t.Context(), Process{ID: id, Name: name, Version: "1.4.0", Roles: "api,worker"}, ttl))
		b.workers[name] = id
	}
	f.ok(f.Lead(f.t.Context(), "partitions", b.workers["web-1/1042"], time.Hour))
	return b
}

type opening struct{ id, agent, owner, context, text, dialect, message, key string }

func (b *book) begin(at time.Duration, o opening) *story {
	b.t.Helper()
	n := &NewTask{
		Task: task.Task{
			ID: NewID(), PublicID: o.id, Agent: o.agent, Owner: o.owner, ContextID: o.context, Dialect: "0.3",
		},
		ClientID: true, Message: user(o.text),
	}
	if o.dialect != "" {
		n.Task.Dialect = o.dialect
	}
	n.Message.ID = o.id + "-m1"
	if o.message != "" {
		n.Message.ID = o.message
	}
	if o.key != "" {
		n.Idempotency = Idempotency{Key: o.key, Hash: []byte(o.key)}
	}
	s := &story{b: b, now: at, open: at < 0, due: at, held: map[task.Attempt]time.Duration{}, h: b.create(n)}
	b.stories = append(b.stories, s)
	return s.dated()
}

// dated gives new events the present time of the story.
func (s *story) dated() *story {
	h := storetest.Must(s.b.Header(s.b.t.Context(), s.h.ID))(s.b.t)
	for len(s.times) < int(h.LastSeq) {
		s.times = append(s.times, s.now)
	}
	s.h = h
	return s
}

func (s *story) wait(d time.Duration) *story {
	s.now += d
	return s
}

func (s *story) claim(worker string) *story {
	s.b.t.Helper()
	s.p = &pen{s: s.b.Store, c: s.b.claim(s.b.workers[worker], s.h.Agent, 1)[0]}
	require.Equal(s.b.t, s.h.ID, s.p.c.Task.ID)
	s.held[s.p.c.Attempt] = s.now
	return s
}

func (s *story) emit(evs ...*task.Event) *story {
	s.b.t.Helper()
	s.p.must(s.b.t, evs...)
	return s.dated()
}

// store stores a state for the task and for its context.
func (s *story) store(value string) *story {
	s.b.t.Helper()
	for _, inContext := range []bool{false, true} {
		storetest.Must(s.p.setState(s.b.t.Context(), inContext, value, 0))(s.b.t)
	}
	return s
}

func (s *story) say(text string) *story {
	s.b.t.Helper()
	m := user(text)
	m.ID = fmt.Sprintf("%s-m%d", s.h.PublicID, len(s.times)+1)
	storetest.Must(s.b.AddMessage(s.b.t.Context(), &NewMessage{Task: s.h, Message: m, RequestID: NewID()}))(s.b.t)
	s.due = s.now
	return s.dated()
}

func (s *story) retry(reason string, after time.Duration) *story {
	s.b.t.Helper()
	require.NoError(s.b.t, s.b.GiveBack(s.b.t.Context(), Requeue{
		Task: s.h.ID, Agent: s.h.Agent, Fence: s.p.c.Fence, Note: task.RunNote{Outcome: task.RunRetry, Error: reason},
	}))
	s.due = s.now + after
	return s.dated()
}

func (s *story) cancel() *story {
	s.b.t.Helper()
	storetest.Must(s.b.Cancel(s.b.t.Context(), s.h, nil))(s.b.t)
	s.asked = s.now
	return s.dated()
}

// lose lets the run's worker be declared dead.
func (s *story) lose() *story {
	s.b.t.Helper()
	_, runs := must2(s.b.Rescue(s.b.t.Context(), 0, true))(s.b.t)
	require.Len(s.b.t, runs, 1)
	return s.dated()
}

// speaks is a status with a text and, if they are not zero, the tokens that it took.
func speaks(state task.State, text string, in, out int) *task.Event {
	e := status(state)
	e.Message = &task.Message{ID: "a", Role: task.RoleAgent, Parts: []task.Part{task.Text(text)}}
	e.Message.Metadata = usageJSON(in, out)
	return e
}

func failing(text, cause string) *task.Event {
	e := speaks(task.StateFailed, text, 0, 0)
	e.Cause = cause
	return e
}

func usageJSON(in, out int) []byte {
	if in == 0 {
		return nil
	}
	return fmt.Appendf(nil, `{"usage":{"inputTokens":%d,"outputTokens":%d,"totalTokens":%d}}`, in, out, in+out)
}

func piece(name, text string, goesOn, last bool) *task.Event {
	return &task.Event{
		Kind: task.EventArtifact, Append: goesOn, Last: last,
		Artifact: &task.Artifact{ID: name, Name: name, Parts: []task.Part{task.Text(text)}},
	}
}

var working = status(task.StateWorking)

func (b *book) write() {
	const sec = time.Second
	done := func() *task.Event { return status(task.StateCompleted) }
	work := func() *task.Event { e := *working; return &e }

	// A trip with two messages, and a second task of the same conversation.
	b.begin(9*time.Hour, opening{id: "trip-1", agent: "travel", owner: "ada", context: "c-oslo", text: "Book me a trip", key: "k-1"}).
		wait(sec / 2).claim("web-1/1042").emit(work()).
		wait(2 * sec).emit(speaks(task.StateInputRequired, "Where to?", 90, 10)).
		wait(time.Minute).say("Oslo").
		wait(sec).claim("web-2/988").emit(work()).
		wait(3 * sec).emit(piece("itinerary", "DY 1303, ", false, false)).
		wait(sec).emit(piece("itinerary", "07:20", true, true)).
		wait(sec).emit(speaks(task.StateCompleted, "Booked.", 1000, 200))
	hotel := piece("hotel", "Two nights at the harbour", false, true)
	hotel.Metadata = usageJSON(700, 100)
	b.begin(9*time.Hour+10*time.Minute, opening{id: "trip-2", agent: "travel", owner: "ada", context: "c-oslo", text: "And a hotel", key: "k-2"}).
		wait(sec).claim("web-1/1042").emit(work()).wait(4 * sec).emit(hotel).wait(sec).emit(done())

	// One task that fails, one that is tried three times, and one whose worker dies.
	b.begin(9*time.Hour+20*time.Minute, opening{id: "trip-3", agent: "travel", owner: "ben", context: "c-rome", text: "Rome, today"}).
		wait(sec).claim("web-1/1042").emit(work()).wait(sec).emit(speaks(task.StateFailed, "No seats left.", 0, 0))
	b.begin(9*time.Hour+30*time.Minute, opening{id: "trip-4", agent: "travel", owner: "ben", context: "c-rome", text: "Rome, tomorrow"}).
		wait(sec).claim("web-2/988").emit(work()).wait(2*sec).retry("the fares service answered 503", 5*sec).
		wait(6*sec).claim("web-2/988").wait(2*sec).retry("the fares service answered 503", 10*sec).
		wait(11 * sec).claim("web-1/1042").wait(2 * sec).emit(piece("itinerary", "AZ 77", false, true)).emit(done())
	b.begin(10*time.Hour, opening{id: "trip-5", agent: "travel", owner: "ben", context: "c-rome", text: "A guide to Rome"}).
		wait(sec).claim("web-2/731").emit(work()).wait(4 * sec).emit(piece("guide", "The Forum", false, false)).
		wait(10 * sec).lose().
		wait(sec).claim("web-1/1042").wait(20 * sec).emit(piece("guide", "The Forum opens at nine.", false, true)).emit(done())

	// Streams of another agent, and a client that sends everything twice.
	poem := b.begin(10*time.Hour+15*time.Minute, opening{id: "poem-1", agent: "writer", owner: "ada", context: "c-poem", text: "A long poem", dialect: "1.0"}).
		wait(sec / 10).claim("web-1/1042").emit(work())
	for i := range 20 {
		poem.wait(sec / 4).emit(piece("poem", strings.Repeat("rolling waves ", 20), i > 0, i == 19))
	}
	poem.emit(speaks(task.StateCompleted, "That is all.", 40, 900))
	for i, at := range []time.Duration{10*time.Hour + 16*time.Minute, 10*time.Hour + 16*time.Minute + 2*sec} {
		s := b.begin(at, opening{
			id: fmt.Sprintf("haiku-%d", i+1), agent: "writer", owner: "cyd", context: "c-haiku", text: "A haiku", dialect: "0.1", message: "m-77",
		})
		s.wait(sec / 2).claim("web-2/988").emit(work()).wait(sec).emit(piece("haiku", "old pond", false, true)).emit(done())
	}

	// Cancels: one of a running task, one of a queued task.
	b.begin(11*time.Hour, opening{id: "essay-1", agent: "writer", owner: "cyd", context: "c-essay", text: "An essay"}).
		wait(sec).claim("web-1/1042").emit(work()).wait(30 * sec).cancel().wait(3 * sec / 2).emit(status(task.StateCanceled))
	b.begin(11*time.Hour+time.Minute, opening{id: "essay-2", agent: "writer", owner: "cyd", context: "c-essay", text: "A shorter one"}).
		wait(5 * sec).cancel()

	// Support fails and rejects.
	for i, text := range []string{"My login is broken", "It still is"} {
		b.begin(14*time.Hour+time.Duration(i)*time.Minute, opening{
			id: fmt.Sprintf("help-%d", i+1), agent: "support", owner: "ben", context: "c-login", text: text,
		}).wait(sec).claim("web-2/988").emit(work()).wait(6 * sec).emit(failing("The agent failed.", "exit status 1: no model is configured"))
	}
	b.begin(15*time.Hour, opening{id: "help-3", agent: "support", owner: "cyd", context: "c-refund", text: "Refund everyone"}).
		wait(sec).claim("web-2/988").emit(work()).wait(sec).emit(speaks(task.StateRejected, "Not without a manager.", 0, 0))

	// Now: unanswered questions, runs under way, and a queue.
	for i, ago := range []time.Duration{5 * 24 * time.Hour, 4 * 24 * time.Hour, time.Hour} {
		b.begin(-ago-2*sec, opening{
			id: fmt.Sprintf("ask-%d", i+1), agent: "support", owner: "cyd", context: fmt.Sprintf("c-ask-%d", i+1), text: "Help",
		}).wait(sec).claim("web-1/1042").emit(work()).wait(sec).emit(speaks(task.StateInputRequired, "Which order?", 0, 0))
	}
	b.begin(-3*time.Hour, opening{id: "novel-1", agent: "writer", owner: "ada", context: "c-novel", text: "A novel"}).
		wait(sec).claim("web-1/1042").emit(work()).wait(10 * time.Minute).emit(piece("novel", "Chapter one", false, false)).
		store(`{"chapter": 1}`)
	b.begin(-2*time.Minute, opening{id: "novel-2", agent: "writer", owner: "ben", context: "c-novel-2", text: "Another novel"}).
		wait(sec).claim("web-2/988").emit(work())
	b.begin(-20*time.Second, opening{id: "help-4", agent: "support", owner: "ben", context: "c-later", text: "Anybody?"}).
		wait(sec).claim("web-2/988").emit(work()).wait(sec).retry("the model is busy", time.Minute)
	b.begin(-90*time.Second, opening{id: "trip-6", agent: "travel", owner: "ada", context: "c-paris", text: "Paris"})
	b.begin(-30*time.Second, opening{id: "trip-7", agent: "travel", owner: "ada", context: "c-bergen", text: "Bergen"})

	// Webhooks: one that succeeds after a while, some of a receiver that is down, one whose receiver is gone.
	gone := answered{status: 410, class: "gone", text: "410 Gone", disable: "the receiver answered 410 Gone"}
	down := answered{status: 503, class: "server", text: "503 Service Unavailable", retry: time.Hour}
	b.hook("novel-1", "https://app.example/hooks", down, answered{status: 204, class: "delivered"})
	for i := range 3 {
		b.hook(fmt.Sprintf("ask-%d", i+1), "https://crm.example/a2a", slices.Repeat([]answered{down}, 3-i)...)
	}
	b.hook("essay-1", "https://old.example/", gone)
}

// answered is a receiver's answer.
type answered struct {
	status               int
	class, text, disable string
	retry                time.Duration
}

// hook gives a task a webhook for its last event, with one attempt for each answer.
func (b *book) hook(name, url string, answers ...answered) {
	b.t.Helper()
	ctx := b.t.Context()
	i := slices.IndexFunc(b.stories, func(s *story) bool { return s.h.PublicID == name })
	h := b.stories[i].h
	require.NoError(b.t, b.SetPush(ctx, h.ID, &task.PushConfig{ID: "w1", URL: url, Host: hostOf(url), Dialect: h.Dialect}, 20))
	must2(b.Redeliver(ctx, h.ID, "w1", h.Status.Seq))(b.t)
	for _, a := range answers {
		b.exec("UPDATE holdfast.push_cursors SET due_at = now() WHERE task = $1", uuid.UUID(h.ID))
		due, _, err := b.ClaimPush(ctx, &PushClaim{Worker: b.workers["web-1/1042"], Limit: 1, PerHost: 1, PerCaller: 1, Lock: time.Hour})
		require.NoError(b.t, err)
		require.Len(b.t, due, 1)
		ours, _, err := b.RecordPush(ctx, &PushOutcome{
			Task: h.ID, ConfigID: "w1", Claim: due[0].Claim, From: h.Status.Seq, To: h.Status.Seq, DeliveryID: "j-" + name,
			Status: a.status, Class: a.class, Error: a.text, Took: 40 * time.Millisecond, Delivered: a.text == "", Failed: a.text != "", DueIn: a.retry, Disable: a.disable,
		})
		require.NoError(b.t, err)
		require.True(b.t, ours)
	}
}

// date sets all times, in the transaction that asks the questions, whose now() does not move.
func (b *book) date(tx pgx.Tx) {
	exec := func(sql string, args ...any) {
		b.t.Helper()
		storetest.Must(tx.Exec(b.t.Context(), sql, args...))(b.t, sql)
	}
	exec("SET LOCAL timezone = 'UTC'")
	exec("DELETE FROM holdfast.idempotency_keys WHERE day <> ((created_at - interval '5 minutes') AT TIME ZONE 'UTC')::date") // the second row near midnight
	var yesterday, now time.Time
	require.NoError(b.t, tx.QueryRow(b.t.Context(), "SELECT date_trunc('day', now()) - interval '1 day', now()").Scan(&yesterday, &now))
	for _, s := range b.stories {
		base, id := yesterday, uuid.UUID(s.h.ID)
		if s.open {
			base = now
		}
		at := make([]time.Time, len(s.times))
		for i, d := range s.times {
			at[i] = base.Add(d)
		}
		exec(`UPDATE holdfast.task_events e SET created_at = x.at FROM unnest($2::timestamptz[]) WITH ORDINALITY x(at, seq)
			WHERE e.task = $1 AND e.seq = x.seq`, id, at)
		for attempt, d := range s.held {
			exec("UPDATE holdfast.task_events SET claimed_at = $3 WHERE task = $1 AND attempt = $2 AND worker_id IS NOT NULL", id, attempt, base.Add(d))
			exec("UPDATE holdfast.tasks SET claimed_at = $3 WHERE id = $1 AND attempt = $2", id, attempt, base.Add(d))
		}
		exec(`UPDATE holdfast.tasks SET created_at = $2, status_at = $3,
			cancel_requested_at = CASE WHEN cancel_requested THEN $4::timestamptz END WHERE id = $1`, id, at[0], at[s.h.Status.Seq-1], base.Add(s.asked))
		exec("UPDATE holdfast.task_queue SET available_at = $2 WHERE id = $1", id, base.Add(s.due))
		exec(`UPDATE holdfast.idempotency_keys SET created_at = $2, day = (($2::timestamptz - interval '5 minutes') AT TIME ZONE 'UTC')::date WHERE task = $1`, id, at[0])
	}
	exec("UPDATE holdfast.workers SET started_at = now() - interval '2 days'")
	exec(`UPDATE holdfast.push_configs c SET created_at = t.created_at FROM holdfast.tasks t WHERE t.id = c.task`)
	exec(`UPDATE holdfast.push_cursors SET due_since = due_since - (due_since - now()) - interval '40 minutes',
		failing_since = failing_since - (failing_since - now()) - interval '39 minutes', disabled_at = disabled_at - (disabled_at - now()) - interval '3 hours'`)
	exec(`UPDATE holdfast.push_attempts a SET started_at = t.status_at + interval '5 minutes' * n FROM holdfast.tasks t,
		(SELECT id, row_number() OVER (PARTITION BY task ORDER BY id) AS n FROM holdfast.push_attempts) x WHERE t.id = a.task AND x.id = a.id`)
}
