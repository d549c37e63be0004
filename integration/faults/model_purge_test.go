package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// An operator's purge deletes a task at any moment of its life. Operations that ended before the
// purge are checked against the log as it was then. Those that began after it must not find the
// task. Nothing is said about those in between, except that they end.

// purge is the deletion of a task.
type purge struct {
	log   []logged  // just before
	began time.Time // before log was read
	ended time.Time // zero: no purge was confirmed, and the task may still be there
}

// beginPurge reads the log of a task that is about to be purged, and reports whether there is one.
// The model leaves out tasks whose id the client chose: a message of A2A 0.1 makes a new task with
// the id of a purged one.
func (w *world) beginPurge(d *done) bool {
	if maker := w.ops[d.task]; maker == nil || maker.target != "" {
		return false
	}
	for _, o := range w.all {
		if o.d == a2atest.V01 && o.target == d.target && o.sends() {
			waittest.Within(w.l.T, "the message of "+o.String(), o.known) // stored, or never will be
		}
	}
	began := time.Now()
	log, err := logOf(w.l, d.target)
	if err != nil {
		w.l.T.Fatal(err)
	}
	if len(log) == 0 {
		return false
	}
	if w.purged[d.target] == nil {
		w.purged[d.target] = &purge{log: log, began: began}
	}
	return true
}

// callPurge purges a task on the admin address of a replica.
func (w *world) callPurge(ctx context.Context, d *done) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.admin+"/tasks/purge", strings.NewReader(fmt.Sprintf(`{"task":%q}`, d.target)))
	if err != nil {
		d.broken = err
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.broken = err
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		d.broken = err
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusNotFound: // not found: purged by another one
		w.mu.Lock()
		defer w.mu.Unlock()
		if p := w.purged[d.target]; p.ended.IsZero() {
			p.ended = time.Now()
		}
	default:
		d.broken = fmt.Errorf("%s: %s", resp.Status, body)
	}
}

// purgedRecords adds the purged tasks to the records, with their logs from before.
func (w *world) purgedRecords(records map[string]*record) (objections []string) {
	for id, p := range w.purged {
		switch {
		case records[id] == nil:
			r := &record{id: id, public: id, log: p.log, purged: p}
			r.fold()
			records[id] = r
		case !p.ended.IsZero():
			objections = append(objections, id+" was purged and is still there")
		}
	}
	return objections
}

// lost returns the purge that an operation may have met; nil if it ended before, or saw a task that
// is still there.
func (c *checker) lost(d *done) *purge {
	if r := c.records[d.taskID]; r != nil && r.purged == nil {
		return nil
	}
	for _, r := range append(slices.Clone(c.gone[d.msg]), c.records[d.taskID], c.records[d.target]) {
		if r != nil && r.purged != nil && d.end.After(r.purged.began) {
			return r.purged
		}
	}
	return nil
}

// afterPurge checks an operation that may have met a purge, or a purge that failed (nil).
func (c *checker) afterPurge(d *done, p *purge) error {
	r := c.records[d.target]
	if p == nil || r == nil || r.purged != p || p.ended.IsZero() || d.begin.Before(p.ended) || d.kind == opPurge || d.cut || c.w.excused(d) {
		return nil
	}
	if d.refuse != nil && d.refuse.Code == notFound {
		return nil
	}
	return errors.New("the task was purged before, and was found")
}
