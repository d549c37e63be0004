package judgetest

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

const (
	chunksID = "0199a3c1-5b7e-7c3a-9a51-000000000001" // a stream of three chunks
	askID    = "0199a3c1-5b7e-7c3a-9a51-000000000002" // a question that waits for its answer
	waitID   = "0199a3c1-5b7e-7c3a-9a51-000000000004" // a wait, and the turn after it
	resumeID = "0199a3c1-5b7e-7c3a-9a51-000000000005" // a question, and the turn of a resume
)

func live(t *testing.T, db *storetest.DB) {
	t.Helper()
	conn := storetest.Connect(t, db.URL)
	id, err := task.ParseID(chunksID)
	require.NoError(t, err)
	created := partition.TimeOf(id)
	require.NoError(t, storetest.Partitions(t.Context(), db.URL, created, created.Add(time.Millisecond)))
	life, err := os.ReadFile("testdata/life.sql")
	require.NoError(t, err)
	_, err = conn.PgConn().Exec(t.Context(), string(life)).ReadAll()
	require.NoError(t, err)
}

// told is the ledger of honest clients of these tasks. The first reading is a stream from the task's beginning, cut
// and resumed; the second polls; the third reads the log again from event 2 on.
func told() *judge.Ledger {
	l := judge.New()
	for i, id := range []string{chunksID, askID} {
		mark := fmt.Sprint("mark-", i+1)
		l.Sending(mark)
		l.Stored(mark, id)
	}
	l.Sending("mark-3")
	l.Refused("mark-3")
	l.Sending("mark-4") // never answered
	l.Sending("mark-5")
	l.Stored("mark-5", waitID)
	l.Expect(waitID, judge.Outcome{State: "completed"})
	l.Sending("mark-7")
	l.Stored("mark-7", resumeID)
	l.Resuming("r-1")
	l.Accepted("r-1", resumeID)
	l.Resuming("r-2")
	l.Dead("r-2")
	l.Resuming("r-3") // never answered
	l.Expect(chunksID, judge.Outcome{State: "completed", Chunks: 3})
	l.Expect(askID, judge.Outcome{State: "input-required"})
	stream := l.Follow(chunksID)
	stream.Saw(judge.View{Seq: 1, State: "submitted", Artifacts: map[string]string{}})
	polls := l.Follow(chunksID)
	polls.Saw(judge.View{State: "working", Artifacts: map[string]string{"chunks": "00000000 a00000001 b"}})
	polls.Saw(judge.View{State: "completed", Artifacts: map[string]string{"chunks": "00000000 a00000001 b00000002 c"}})
	again := l.Follow(chunksID)
	again.From(2)
	for _, e := range []judge.Event{
		{Seq: 2, State: "working"},
		{Seq: 3, Artifact: "chunks", Text: "00000000 a"},
		{Seq: 4, Artifact: "chunks", Text: "00000001 b", Append: true},
		{Seq: 5, Artifact: "chunks", Text: "00000002 c", Append: true, Last: true},
		{Seq: 6, State: "completed", Final: true},
	} {
		stream.Read(e)
		if e.Seq > 2 {
			again.Read(e)
		}
	}
	asked := l.Follow(askID)
	asked.Saw(judge.View{Seq: 1, State: "submitted"})
	asked.Read(judge.Event{Seq: 2, State: "working"})
	asked.Read(judge.Event{Seq: 3, State: "input-required", Text: "what?", Final: true})
	return l
}

// swap exchanges two events in the log of the stream.
func swap(a, b int) string {
	return fmt.Sprintf(`UPDATE holdfast.task_events SET seq = CASE seq WHEN %[1]d THEN 100 + %[2]d ELSE 100 + %[1]d END
		 WHERE task = '%[3]s' AND seq IN (%[1]d, %[2]d);
		UPDATE holdfast.task_events SET seq = seq - 100 WHERE seq > 100`, a, b, chunksID)
}

// A check that never fails proves nothing.
func TestCheckFindsViolations(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	live(t, db)
	remove := func(r, i int) func(*judge.Ledger) {
		return func(l *judge.Ledger) { l.Readings[r].Entries = slices.Delete(l.Readings[r].Entries, i, i+1) }
	}
	for _, c := range []struct {
		name   string
		stored string              // damage to the database
		told   func(*judge.Ledger) // damage to the ledger
		says   string
	}{
		{"the log: an event removed", "DELETE FROM holdfast.task_events WHERE task = '" + chunksID + "' AND seq = 4", nil, "without a gap"},
		{"the log: an event removed, and the gap closed", `
			DELETE FROM holdfast.task_events WHERE task = '` + chunksID + `' AND seq = 4;
			UPDATE holdfast.task_events SET seq = 4 WHERE task = '` + chunksID + `' AND seq = 5;
			UPDATE holdfast.task_events SET seq = 5 WHERE task = '` + chunksID + `' AND seq = 6;
			UPDATE holdfast.tasks SET last_seq = 5, status_seq = 5, run_ordinal = 4 WHERE id = '` + chunksID + `'`, nil, `is chunk "00000002", and should be 1`},
		{"the log: an event doubled, and counted", `
			UPDATE holdfast.task_events SET seq = 7 WHERE task = '` + chunksID + `' AND seq = 6;
			UPDATE holdfast.task_events SET seq = 6 WHERE task = '` + chunksID + `' AND seq = 5;
			INSERT INTO holdfast.task_events (task, seq, kind, attempt, append, artifact_id, payload)
			SELECT task, 5, kind, attempt, append, artifact_id, payload FROM holdfast.task_events WHERE task = '` + chunksID + `' AND seq = 4;
			UPDATE holdfast.tasks SET last_seq = 7, status_seq = 7, run_ordinal = 6 WHERE id = '` + chunksID + `'`, nil, "the log continues with"},
		{"the log: two chunks in another order", swap(4, 5), nil, "the log continues with"},
		{"the log: a chunk before its status", swap(2, 3), nil, "the log continues with"},
		{"the log: another text", `UPDATE holdfast.task_events SET payload = '{"parts":[{"text":"00000001 x"}]}'
			WHERE task = '` + chunksID + `' AND seq = 4`, nil, "the log continues with"},
		{"the log: the end taken back", `
			DELETE FROM holdfast.task_events WHERE task = '` + chunksID + `' AND seq = 6;
			INSERT INTO holdfast.task_queue (id, agent, message_seq) VALUES ('` + chunksID + `', 'demo', 1);
			UPDATE holdfast.tasks SET state = 2, last_seq = 5, status_seq = 2, run_ordinal = 4 WHERE id = '` + chunksID + `'`, nil, "is still working"},
		{"a task removed", `
			DELETE FROM holdfast.task_events WHERE task = '` + askID + `'; DELETE FROM holdfast.tasks WHERE id = '` + askID + `'`, nil, "is lost"},
		{"a task doubled", `
			INSERT INTO holdfast.tasks SELECT (jsonb_populate_record(t, '{"id":"0199a3c1-5b7e-7c3a-9a51-000000000003"}')).* FROM holdfast.tasks t WHERE id = '` + askID + `';
			INSERT INTO holdfast.task_events SELECT (jsonb_populate_record(e, '{"task":"0199a3c1-5b7e-7c3a-9a51-000000000003"}')).*
			FROM holdfast.task_events e WHERE task = '` + askID + `'`, nil, "is stored 2 times"},

		{"a stream: an event removed", "", remove(0, 3), "the log continues with"},
		{"a stream: the opening removed", "", remove(0, 0), "before the stream was opened"},
		{"a stream: an event doubled", "", func(l *judge.Ledger) {
			l.Readings[0].Entries = slices.Insert(l.Readings[0].Entries, 3, l.Readings[0].Entries[3])
		}, "the log continues with"},
		{"a stream: the end doubled", "", func(l *judge.Ledger) {
			l.Readings[0].Entries = append(l.Readings[0].Entries, l.Readings[0].Entries[5])
		}, "but the log ends with"},
		{"a stream: two events in another order", "", func(l *judge.Ledger) {
			e := l.Readings[2].Entries
			e[2], e[3] = e[3], e[2]
		}, "the log continues with"},
		{"a stream: no end", "", remove(0, 5), "had no end"},
		{"a stream: one event of another's", "", func(l *judge.Ledger) {
			l.Readings[3].Entries[1] = l.Readings[0].Entries[2]
		}, "the log continues with"},
		{"answers: older ones later", "", func(l *judge.Ledger) {
			e := l.Readings[1].Entries
			e[0], e[1] = e[1], e[0]
		}, "no position of the log from there on"},
		{"answers: a view that never existed", "", func(l *judge.Ledger) {
			l.Follow(chunksID).Saw(judge.View{State: "canceled"})
		}, "no position of the log"},
		{"a wait: its turn is early", `UPDATE holdfast.task_events SET payload = '{"outcome":"waits","until":"2999-10-01T10:00:01Z","interruptible":true}'
			WHERE task = '` + waitID + `' AND seq = 3`, nil, "follows a wait until 2999"},
		{"a wait: its timer fires twice", "UPDATE holdfast.tasks SET turns = 3 WHERE id = '" + waitID + "'", nil, "turns counts the messages, the timers"},
		{"a resume: it has no turn", `UPDATE holdfast.task_events SET payload = NULL WHERE task = '` + resumeID + `' AND seq = 6`, nil, "has 0 turns of resumes, and was resumed 1 times"},
		{"a resume: its turn has none", `UPDATE holdfast.task_events SET payload = '{"outcome":"checkpoint"}' WHERE task = '` + resumeID + `' AND seq = 4`, nil, "has 1 turns of resumes, and was resumed 0 times"},
		{"a resume: two turns of one", `UPDATE holdfast.task_events SET payload = '{"message":{"parts":[{"text":"resumed by r-1\nhttp://x"}]}}'
			WHERE task = '` + askID + `' AND seq = 3`, nil, `"r-1" is the input of 2 turns`},
		{"a resume: accepted, and lost", "", func(l *judge.Ledger) { l.Accepted("r-3", resumeID) }, "is the input of no turn"},
		{"a resume: accepted for another task", "", func(l *judge.Ledger) { l.Accepted("r-1", askID) }, "is the input of a turn of task"},
		{"a resume: refused, and used", "", func(l *judge.Ledger) { l.Dead("r-1") }, "was refused, and is the input"},
		{"a resume that no client sent", "", func(l *judge.Ledger) { delete(l.Resumes, "r-1") }, "no client sent it"},
		{"an acknowledgement of nothing", "", func(l *judge.Ledger) { l.Stored("mark-6", chunksID) }, "is lost"},
		{"an acknowledgement for another task", "", func(l *judge.Ledger) { l.Stored("mark-2", chunksID) }, "is in task"},
		{"a refusal of a stored message", "", func(l *judge.Ledger) { l.Refused("mark-2") }, "was refused, and is stored"},
		{"a message that no client sent", "", func(l *judge.Ledger) { delete(l.Messages, "mark-2") }, "no client sent it"},
		{"another end than was expected", "", func(l *judge.Ledger) { l.Expect(askID, judge.Outcome{State: "completed"}) }, "and should be completed"},
		{"fewer chunks than were expected", "", func(l *judge.Ledger) {
			l.Expect(chunksID, judge.Outcome{State: "completed", Chunks: 4})
		}, "3 chunks, and should be 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := storetest.Connect(t, db.URL)
			tx, err := conn.Begin(t.Context()) // never committed
			require.NoError(t, err)
			l := told()
			require.NoError(t, Database{}.check(t.Context(), tx, l.Copy(), true), "before the damage")
			if c.stored != "" {
				_, err = conn.PgConn().Exec(t.Context(), c.stored).ReadAll()
				require.NoError(t, err)
			}
			if c.told != nil {
				c.told(l)
			}
			require.ErrorContains(t, Database{}.check(t.Context(), tx, l.Copy(), true), c.says)
		})
	}
}

// Check may run while clients and servers work.
func TestCheckDuringLoadExpectsNoEnd(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	live(t, db)
	l := told()
	l.Readings[0].Entries = l.Readings[0].Entries[:3]
	l.Expect(askID, judge.Outcome{State: "completed"})
	delete(l.Messages, "mark-2")
	require.NoError(t, Database{URL: db.URL}.Check(t.Context(), l))
	require.Error(t, Database{URL: db.URL}.CheckAtRest(t.Context(), l))
	require.Equal(t, judge.Count{Messages: 5, Stored: 3, Refused: 1, Resumes: 3, Accepted: 1, Readings: 4, Views: 4, Events: 8}, l.Count())
}

// Only the tasks of a time are compared with the ledger.
func TestTasksOfATime(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	live(t, db)
	id, err := task.ParseID(chunksID)
	require.NoError(t, err)
	created := partition.TimeOf(id)
	after := created.Add(time.Millisecond)
	for _, d := range []Database{{Since: created}, {Until: after}, {Since: created.Add(-time.Hour), Until: after}} {
		d.URL = db.URL
		require.NoError(t, d.CheckAtRest(t.Context(), told()))
		require.ErrorContains(t, d.CheckAtRest(t.Context(), judge.New()), "no client sent it")
	}
	for _, d := range []Database{{Since: after}, {Until: created}} {
		d.URL = db.URL
		require.NoError(t, d.CheckAtRest(t.Context(), judge.New()))
		require.ErrorContains(t, d.CheckAtRest(t.Context(), told()), "is lost")
	}
}
