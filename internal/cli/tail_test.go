package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// tailOperator plays the database that a tail reads: one step for each read of the header.
type tailOperator struct {
	fakeOperator
	steps []tailStep
	at    int
}

type tailStep struct {
	last  task.Seq
	state task.State
	err   error
	// broken makes one read of events fail.
	broken bool
}

func (o *tailOperator) FindTask(context.Context, string) (*task.Task, error) {
	s := o.steps[min(o.at, len(o.steps)-1)]
	o.at++
	header, _ := storedTask()
	header.LastSeq, header.Status.State = s.last, s.state
	return &header, s.err
}

func (o *tailOperator) Events(ctx context.Context, t *task.Task, after task.Seq) ([]*task.Event, error) {
	if s := &o.steps[min(o.at, len(o.steps))-1]; s.broken {
		s.broken = false
		return nil, away
	}
	evs, err := o.fakeOperator.Events(ctx, t, after)
	return evs[:min(2, len(evs))], err // in pages
}

var away = task.Errorf(task.Unavailable, "the database is not reachable")

func TestTailOfTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps []tailStep
		args  []string
		code  int
		seqs  []int
		err   string
	}{
		"grows and completes": {
			steps: []tailStep{{last: 1, state: task.StateSubmitted}, {last: 3, state: task.StateWorking}, {last: 5, state: task.StateCompleted}},
			seqs:  []int{1, 2, 3, 4, 5},
		},
		"fails": {
			steps: []tailStep{{last: 5, state: task.StateFailed}}, code: exitEnded, seqs: []int{1, 2, 3, 4, 5},
		},
		"parks": {
			steps: []tailStep{{last: 2, state: task.StateInputRequired}}, code: exitWaits, seqs: []int{1, 2},
		},
		"parks and continues": {
			steps: []tailStep{{last: 2, state: task.StateInputRequired}, {last: 5, state: task.StateCompleted}},
			args:  []string{"--follow-parked"}, seqs: []int{1, 2, 3, 4, 5},
		},
		"an old header does not end it": {
			// The pages of events are newer than the header that says parked.
			steps: []tailStep{{last: 1, state: task.StateInputRequired}, {last: 5, state: task.StateCompleted}},
			seqs:  []int{1, 2, 3, 4, 5},
		},
		"is cut twice": {
			steps: []tailStep{{last: 2, state: task.StateWorking}, {err: away}, {err: away}, {last: 5, state: task.StateCompleted, broken: true}},
			seqs:  []int{1, 2, 3, 4, 5}, err: "The database does not answer",
		},
		"stays cut": {
			steps: []tailStep{{last: 2, state: task.StateWorking}, {err: away}}, args: []string{"--retry-for", "1ms"},
			code: exitFailed, seqs: []int{1, 2}, err: "has not answered for 1ms",
		},
		"is deleted": {
			steps: []tailStep{{last: 2, state: task.StateWorking}, {err: task.NotFound}},
			code:  exitFailed, seqs: []int{1, 2}, err: "task order-7: task not found",
		},
		"is restored from a backup": {
			steps: []tailStep{{last: 4, state: task.StateWorking}, {last: 3, state: task.StateWorking}},
			code:  exitFailed, seqs: []int{1, 2, 3, 4}, err: "restored from a backup",
		},
		"is asked for more than there is": {
			steps: []tailStep{{last: 4, state: task.StateWorking}}, args: []string{"--after", "5"},
			code: exitUsage, err: "--after: 5 is beyond the log of order-7, which has 4 events",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := &tailOperator{steps: c.steps}
			s := operating(op)
			r := s.run(t, append([]string{"tasks", "tail", "order-7", "--interval", "10ms", "-o", "json"}, c.args...)...)
			require.Equal(t, c.code, r.code, r.err)
			require.Contains(t, r.err, c.err)
			require.Equal(t, c.seqs, seqsIn(t, r.out))
		})
	}
}

func TestInterruptedTailPrintsResumeCommand(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	op := &tailOperator{steps: []tailStep{{last: 2, state: task.StateWorking}, {err: away}}}
	var out bytes.Buffer
	// The signal comes while the tail waits for the database, when it prints its note.
	errs := &interrupting{cancel: cancel}
	code := Run(ctx, []string{"tasks", "tail", "order-7"}, IO{Out: &out, Err: errs}, operating(op).deps)
	require.Equal(t, exitInterrupted, code, errs)
	require.Contains(t, errs.String(), "continue with: holdfast tasks tail order-7 --after 2")
}

type interrupting struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (i *interrupting) Write(b []byte) (int, error) {
	i.cancel()
	return i.Buffer.Write(b)
}

// seqsIn reads the seqs from lines of JSON.
func seqsIn(t *testing.T, out string) (seqs []int) {
	t.Helper()
	for line := range strings.Lines(out) {
		var e struct{ Seq int }
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		seqs = append(seqs, e.Seq)
	}
	return seqs
}
