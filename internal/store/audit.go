package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Actions in the audit log. docs/audit.md lists them.
const (
	auditCreated       = "task.created"
	auditContinued     = "task.continued" // by a message
	auditResumed       = "task.resumed"   // by its resume URL
	auditCanceled      = "task.canceled"
	auditHurried       = "task.hurried"
	auditHeld          = "task.held"
	auditReleased      = "task.released"
	auditPurged        = "task.purged"
	auditPushSet       = "push.set"
	auditPushDeleted   = "push.deleted"
	auditPushStopped   = "push.disabled"
	auditPushEnabled   = "push.enabled"
	auditRedelivered   = "push.redelivered"
	auditPushRekeyed   = "push.rekeyed"
	auditPushTested    = "push.tested"
	auditKeyCreated    = "key.created"
	auditKeyRevoked    = "key.revoked"
	auditSessionOpened = "session.opened"
	auditSessionEnded  = "session.ended"
	auditViewPut       = "view.put"
	auditViewDeleted   = "view.deleted"
	auditJobCreated    = "job.created"
	auditJobCanceled   = "job.canceled"
	auditWorkerRetired = "worker.retired"
)

type auditEntry struct {
	Action     string `json:"action"`
	Task       string `json:"task,omitempty"`
	Agent      string `json:"agent,omitempty"`
	Tenant     string `json:"tenant,omitempty"`
	Subject    string `json:"subject,omitempty"`
	Method     string `json:"method,omitempty"`
	Credential string `json:"credential,omitempty"`
	Address    string `json:"address,omitempty"`
	Object     string `json:"object,omitempty"`
	Reason     string `json:"reason,omitempty"` // of an operator
	// Webhook is the id of a webhook that a task is created with. View holdfast.v_audit shows it as
	// a separate entry, as for a webhook that is set later.
	Webhook string `json:"webhook,omitempty"`
}

// audited returns the audit entry of an action through a view; "" without an audit log.
func (v View) audited(action string, id task.ID, agent, object string) string {
	return v.entry(id, agent, auditEntry{Action: action, Object: cleanName(object)})
}

// auditedNew returns the audit entry of a new task.
func (v View) auditedNew(n *NewTask) string {
	e := auditEntry{Action: auditCreated}
	if n.Push != nil {
		e.Webhook = cleanName(n.Push.ID)
	}
	return v.entry(n.Task.ID, n.Task.Agent, e)
}

// entry fills in the actor and the task of an audit entry.
func (v View) entry(id task.ID, agent string, e auditEntry) string {
	e.Agent, e.Tenant, e.Subject = cmp.Or(agent, v.sees.Agent), cleanName(v.by.Tenant), cleanName(v.by.Subject)
	e.Method, e.Credential, e.Address, e.Reason = v.by.Method, cleanName(v.by.Credential), v.by.Address, cleanName(v.by.Reason)
	if !id.IsZero() {
		e.Task = id.String()
	}
	text, _ := json.Marshal(&e) // strings only, so it cannot fail
	return string(text)
}

// entries joins the audit entries of one row.
func entries(said ...string) string {
	var b bytes.Buffer
	for _, e := range said {
		if e != "" {
			_ = b.WriteByte(',')
			_, _ = b.WriteString(e)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "[" + b.String()[1:] + "]"
}

// record runs do, and if it reports done writes the audit entry in the same commit.
func (v View) record(ctx context.Context, action string, id task.ID, object string, do func(tx pgx.Tx) (done bool, err error)) error {
	return v.s.unlocked(ctx, action, v.few(ctx, func() error {
		return pgx.BeginFunc(ctx, v.writes(), func(tx pgx.Tx) error {
			done, err := do(tx)
			if err != nil || !done {
				return err
			}
			return v.note(ctx, tx, v.audited(action, id, "", object))
		})
	}))
}

// note writes audit entries. It must be the last statement of a transaction.
func (v View) note(ctx context.Context, tx dbsqlc.DBTX, said ...string) error {
	if text := entries(said...); text != "" {
		return v.s.q.AuditAppend(ctx, tx, text)
	}
	return nil
}

// AuditTrial records a delivery without a task, in the name of an owner.
func (v View) AuditTrial(ctx context.Context, agent string, owner task.Owner) error {
	return translate("audit", v.s.again(ctx, "audit", func() error {
		return v.note(ctx, v.writes(), v.audited(auditPushTested, task.ID{}, agent, strings.TrimPrefix(owner.Tenant+"/"+owner.Subject, "/")))
	}))
}

// AuditChain is the result of verifying one chain of the audit log.
type AuditChain struct {
	Chain   int
	Length  int64
	Removed int64  // last row that retention removed, with all rows before it; 0: none
	Head    string // the last row's hash, in hexadecimal
	// Broken is the first row that was changed or is missing; 0: none. Problem says what is wrong.
	Broken  int64
	Problem string
}

// AuditHead is the end of a chain at an earlier time.
type AuditHead struct {
	Chain  int    `json:"chain"`
	Length int64  `json:"length"`
	Head   string `json:"head"`
}

// auditChains is the number of chains that the migration creates.
const auditChains = 64

// VerifyAudit verifies all chains of the audit log in one snapshot, and reports for each whether
// its rows are unchanged. The log must also still have the rows of the noted heads.
func (s *Store) VerifyAudit(ctx context.Context, noted []AuditHead) (chains []AuditChain, err error) {
	err = pgx.BeginTxFunc(ctx, s.api, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		ends, err := s.q.AuditChains(ctx, tx)
		if err != nil {
			return err
		}
		known := map[int]dbsqlc.AuditChain{}
		for _, e := range ends {
			known[int(e.Chain)] = e
		}
		for i := 1; i <= auditChains; i++ {
			end, there := known[i]
			c := AuditChain{Chain: i, Length: end.Length, Removed: end.Removed, Head: hex.EncodeToString(end.Head)}
			want := map[int64]string{}
			for _, h := range noted {
				if h.Chain == i && h.Length > c.Removed {
					want[h.Length] = h.Head
				}
			}
			if err := s.verifyChain(ctx, tx, &c, end.RemovedHead, want); err != nil {
				return err
			}
			if !there && c.Problem == "" {
				c.Broken, c.Problem = 1, "the chain was removed"
			}
			chains = append(chains, c)
		}
		return nil
	})
	return chains, translate("verify the audit log", err)
}

// verifyChain verifies a chain from the first row that retention has not removed. Of the removed
// rows only the last one's hash is left.
func (s *Store) verifyChain(ctx context.Context, tx pgx.Tx, c *AuditChain, last []byte, noted map[int64]string) error {
	const page = 500
	n := c.Removed
	broken := func(at int64, format string, args ...any) error {
		c.Broken, c.Problem = at, fmt.Sprintf(format, args...)
		return nil
	}
	for {
		rows, err := s.q.AuditRows(ctx, tx, int16(c.Chain), n, page)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if n++; r.N != n {
				return broken(n, "this row is missing; the next one is %d", r.N)
			}
			hash := auditHash(last, c.Chain, r)
			if !bytes.Equal(hash, r.Hash) {
				return broken(n, "this row or the one before it was changed")
			}
			if want, ok := noted[n]; ok && want != hex.EncodeToString(hash) {
				return broken(n, "the chain was rewritten since its head was noted")
			}
			delete(noted, n)
			last = hash
		}
		if len(rows) < page {
			break
		}
	}
	switch {
	case n < c.Length:
		return broken(n+1, "the chain ends before this row, but had %d rows", c.Length)
	case n > c.Length:
		return broken(c.Length+1, "the chain continues after its recorded end, row %d", c.Length)
	case c.Head != hex.EncodeToString(last):
		return broken(n, "the recorded end of the chain has another hash than its last row")
	}
	for length := range noted {
		return broken(n+1, "the chain ends before this row, but had %d rows when its head was noted", length)
	}
	return nil
}

// auditHash returns the hash of a row, as function holdfast.audit in the database computes it.
func auditHash(before []byte, chain int, r *dbsqlc.AuditRowsRow) []byte {
	h := sha256.New()
	_, _ = h.Write(before)
	_, _ = fmt.Fprintf(h, "%d %d %d %s %s", chain, r.N, r.At.UnixMicro(), r.Login, r.Entries)
	return h.Sum(nil)
}

// AuditFilter selects rows of the audit log that have an entry with all of these members. An empty member selects all.
type AuditFilter struct {
	Action, Task, Agent, Subject, Method, Object string
	Tenant                                       *string
}

// Empty reports whether the filter selects all rows.
func (f *AuditFilter) Empty() bool { return *f == AuditFilter{} }

// Matches reports whether a row has an entry of the filter.
func (f *AuditFilter) Matches(entries json.RawMessage) bool {
	if f.Empty() {
		return true
	}
	var all []struct {
		Action, Task, Agent, Tenant, Subject, Method, Object, Webhook, Credential string
	}
	if json.Unmarshal(entries, &all) != nil {
		return false
	}
	for i := range all {
		e := &all[i]
		// View v_audit shows the webhook of a new task as an entry of its own.
		action := f.Action == "" || f.Action == e.Action || f.Action == "push.set" && e.Webhook != ""
		object := f.Object == "" || f.Object == e.Object || f.Object == e.Webhook
		if action && object && (f.Task == "" || f.Task == e.Task) && (f.Agent == "" || f.Agent == e.Agent) && (f.Method == "" || f.Method == e.Method) &&
			(f.Subject == "" || f.Subject == e.Subject || f.Subject == e.Credential) && (f.Tenant == nil || *f.Tenant == e.Tenant) {
			return true
		}
	}
	return false
}
