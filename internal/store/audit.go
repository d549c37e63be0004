package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Caller is for whom a view looks and acts, and how they have shown who they are.
type Caller struct {
	Owner
	Method     string // as engine.Principal has it; MethodOperator for the command line
	Credential string
	Address    string // where from, as far as known
}

// MethodOperator is that of who has the database and needs nobody's leave.
const MethodOperator = "operator"

// What the audit log tells. docs/audit.md lists them.
const (
	auditCreated     = "task.created"
	auditContinued   = "task.continued" // by a message
	auditCanceled    = "task.canceled"
	auditHurried     = "task.hurried"
	auditPushSet     = "push.set"
	auditPushDeleted = "push.deleted"
	auditPushStopped = "push.disabled"
	auditPushEnabled = "push.enabled"
	auditRedelivered = "push.redelivered"
	auditPushRekeyed = "push.rekeyed"
	auditKeyCreated  = "key.created"
	auditKeyRevoked  = "key.revoked"
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
	// Webhook is that of a task that is created with one. The view makes an entry of it, as of one that is set later.
	Webhook string `json:"webhook,omitempty"`
}

// audited says what is done through a view, for the audit log; "" where there is none.
func (v View) audited(action string, id task.ID, agent, object string) string {
	return v.entry(id, agent, auditEntry{Action: action, Object: cleanName(object)})
}

// auditedNew says that a task is created.
func (v View) auditedNew(n *NewTask) string {
	e := auditEntry{Action: auditCreated}
	if n.Push != nil {
		e.Webhook = cleanName(n.Push.ID)
	}
	return v.entry(n.Task.ID, n.Task.Agent, e)
}

// entry fills in who does it, and with which task.
func (v View) entry(id task.ID, agent string, e auditEntry) string {
	if v.s.withoutAudit {
		return ""
	}
	e.Agent, e.Tenant, e.Subject = cmp.Or(agent, v.by.Agent), cleanName(v.by.Tenant), cleanName(v.by.Subject)
	e.Method, e.Credential, e.Address = v.by.Method, cleanName(v.by.Credential), v.by.Address
	if !id.IsZero() {
		e.Task = id.String()
	}
	text, _ := json.Marshal(&e) // of strings, which cannot fail
	return string(text)
}

// entries are those of one row.
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

// record does something, and writes it down in the same commit if it was done.
func (v View) record(ctx context.Context, action string, id task.ID, object string, do func(tx pgx.Tx) (done bool, err error)) error {
	return pgx.BeginFunc(ctx, v.db, func(tx pgx.Tx) error {
		done, err := do(tx)
		if err != nil || !done {
			return err
		}
		return v.note(ctx, tx, v.audited(action, id, "", object))
	})
}

// note writes entries down as the last thing that a transaction does.
func (v View) note(ctx context.Context, tx dbsqlc.DBTX, said ...string) error {
	if text := entries(said...); text != "" {
		return v.s.q.AuditAppend(ctx, tx, text)
	}
	return nil
}

// AuditChain is one chain of the audit log, as it was found.
type AuditChain struct {
	Chain  int
	Length int64
	Head   string // the last row's hash, in hexadecimal
	// Broken is the first row that is not as it was written, or is not there; 0: none. Problem says what is wrong.
	Broken  int64
	Problem string
}

// AuditHead is where a chain has ended at some time before.
type AuditHead struct {
	Chain  int    `json:"chain"`
	Length int64  `json:"length"`
	Head   string `json:"head"`
}

// auditChains is how many the migration made.
const auditChains = 64

// VerifyAudit walks through all chains of the audit log, as of one moment, and says of each whether its rows are what was
// written. What the log held when heads were noted must still be in it.
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
			c := AuditChain{Chain: i, Length: end.Length, Head: hex.EncodeToString(end.Head)}
			want := map[int64]string{}
			for _, h := range noted {
				if h.Chain == i && h.Length > 0 {
					want[h.Length] = h.Head
				}
			}
			if err := s.verifyChain(ctx, tx, &c, want); err != nil {
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

func (s *Store) verifyChain(ctx context.Context, tx pgx.Tx, c *AuditChain, noted map[int64]string) error {
	const page = 500
	var (
		n    int64
		last []byte
	)
	broken := func(at int64, format string, args ...any) error {
		c.Broken, c.Problem = at, fmt.Sprintf(format, args...)
		return nil
	}
	for {
		rows, err := s.q.AuditRows(ctx, tx, dbsqlc.AuditRowsParams{Chain: int16(c.Chain), After: n, MaxRows: page})
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if n++; r.N != n {
				return broken(n, "the row is not there; the next one is %d", r.N)
			}
			hash := auditHash(last, c.Chain, r)
			if !bytes.Equal(hash, r.Hash) {
				return broken(n, "the row, or the one before it, is not what was written")
			}
			if want, ok := noted[n]; ok && want != hex.EncodeToString(hash) {
				return broken(n, "the chain was written anew since its head was noted")
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
		return broken(n+1, "the chain ends before this row, and had %d", c.Length)
	case n > c.Length:
		return broken(c.Length+1, "the chain goes on behind its end, which is at %d", c.Length)
	case c.Head != hex.EncodeToString(last):
		return broken(n, "the chain's end has another hash than its last row")
	}
	for length := range noted {
		return broken(n+1, "the chain ends before this row, and had %d when its head was noted", length)
	}
	return nil
}

// auditHash is that of a row, as holdfast.audit in the database makes it.
func auditHash(before []byte, chain int, r *dbsqlc.AuditRowsRow) []byte {
	h := sha256.New()
	_, _ = h.Write(before)
	_, _ = fmt.Fprintf(h, "%d %d %d %s %s", chain, r.N, r.At.UnixMicro(), r.Login, r.Entries)
	return h.Sum(nil)
}
