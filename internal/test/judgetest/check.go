// Package judgetest compares the answers that clients got with the tables: see package judge. It also checks the tables alone.
package judgetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// Database is where servers keep what their clients were told.
type Database struct {
	URL string
	// Exports is the directory where servers export tasks that retention deletes; "" without exports.
	Exports string
	// Since and Until bound the tasks that are compared, by the time of their creation. Of others the ledger has nothing. A zero time
	// is no bound.
	Since, Until time.Time
}

// within reports whether a task is compared.
func (d Database) within(id task.ID) bool {
	at := partition.TimeOf(id)
	return !at.Before(d.Since.Truncate(time.Millisecond)) && (d.Until.IsZero() || at.Before(d.Until.Truncate(time.Millisecond)))
}

// Check returns the violations in the database, or nil. It checks the database alone (package invarianttest)
// and against the ledger. It may run at any time: everything recorded before it began must be stored.
func (d Database) Check(ctx context.Context, l *judge.Ledger) error { return d.open(ctx, l, false) }

// CheckAtRest is Check after all clients are done. Then every task has ended or is parked, as expected, and every
// stream has ended.
func (d Database) CheckAtRest(ctx context.Context, l *judge.Ledger) error {
	return d.open(ctx, l, true)
}

func (d Database) open(ctx context.Context, l *judge.Ledger, rest bool) error {
	l = l.Copy() // before the snapshot that it is compared with
	conn, err := pgx.Connect(ctx, d.URL)
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return d.check(ctx, tx, l, rest)
	})
}

func (d Database) check(ctx context.Context, tx pgx.Tx, l *judge.Ledger, rest bool) error {
	found := []error{invarianttest.CheckIn(ctx, tx)}
	logs, err := d.readLogs(ctx, tx)
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	if d.Exports != "" {
		// After the snapshot: rows that it no longer has were exported before.
		if err := d.readExports(logs); err != nil {
			return fmt.Errorf("judge: %w", err)
		}
	}
	for _, v := range judge.Audit(logs, l, rest) {
		found = append(found, v)
	}
	return errors.Join(found...)
}

func (d Database) readLogs(ctx context.Context, tx pgx.Tx) (map[string]*judge.Log, error) {
	//nolint:rowserrcheck // ForEachRow does
	rows, err := tx.Query(ctx, `
		SELECT t.id, coalesce(t.client_id, t.id::text), e.seq, e.kind, coalesce(e.state, 0), coalesce(e.artifact_id, ''), e.append, e.last,
		       coalesce(e.payload #>> '{parts,-1,text}', ''),
		       (SELECT coalesce(string_agg(p ->> 'text', '' ORDER BY n), '') FROM json_array_elements(
		            CASE e.kind WHEN 3 THEN e.payload -> 'parts' WHEN 2 THEN e.payload #> '{message,parts}' END
		        ) WITH ORDINALITY AS x (p, n)),
		       e.created_at, CASE e.kind WHEN 4 THEN (e.payload ->> 'until')::timestamptz END, coalesce((e.payload ->> 'interruptible')::boolean, false),
		       e.kind = 4 AND e.payload ->> 'outcome' = 'resume'
		  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
		 ORDER BY e.task, e.seq`)
	if err != nil {
		return nil, err
	}
	logs := map[string]*judge.Log{}
	var internal task.ID
	var id, mark string
	var kind task.EventKind
	var state task.State
	var r judge.Row
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&internal), &id, &r.Seq, &kind, &state, &r.Artifact, &r.Append, &r.Last, &mark, &r.Text, &r.At, &until, &r.Early, &r.Resume}, func() error {
		if !d.within(internal) {
			return nil
		}
		r.Until = time.Time{}
		if until != nil {
			r.Until = *until
		}
		r.Shown = kind == task.EventStatus || kind == task.EventArtifact
		r.State, r.Mark = "", ""
		switch kind {
		case task.EventStatus:
			r.State = state.String()
		case task.EventMessage:
			r.Mark = mark
		case task.EventArtifact, task.EventRun:
		}
		if logs[id] == nil {
			logs[id] = &judge.Log{}
		}
		logs[id].Events = append(logs[id].Events, r)
		return nil
	})
	return logs, err
}
