package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// A page of the audit log with a filter passes over auditBatches batches of auditBatch rows at most.
const (
	auditBatch   = 500
	auditBatches = 10
)

func (a *API) audit(x *exchange) error {
	before, since, limit := x.q.auditPlace(), x.q.time("since"), x.q.limit()
	if until := x.q.time("until"); !until.IsZero() && (before.At.IsZero() || until.Before(before.At)) {
		before = store.AuditPlace{At: until}
	}
	f := store.AuditFilter{
		Action: x.q.word("action"), Task: x.q.word("task"), Agent: x.q.word("agent"), Subject: x.q.word("subject"), Method: x.q.word("method"),
		Object: x.q.word("object"), Tenant: x.q.optional("tenant"),
	}
	if err := x.q.done(); err != nil {
		return err
	}
	batch := limit + 1
	if !f.Empty() {
		batch = auditBatch
	}
	page := shown.AuditPage{Rows: []store.AuditRow{}}
	for range auditBatches {
		rows, err := a.o.Store.Audit(x.ctx, before, since, batch)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !f.Matches(r.Entries) {
				before = r.AuditPlace
				continue
			}
			if len(page.Rows) == limit {
				page.Next = nextAudit(before)
				return x.ok(page)
			}
			page.Rows = append(page.Rows, r)
			before = r.AuditPlace
		}
		if len(rows) < batch {
			return x.ok(page)
		}
	}
	page.Next = nextAudit(before)
	return x.ok(page)
}

func nextAudit(p store.AuditPlace) string {
	return strconv.FormatInt(p.At.UnixMicro(), 10) + "." + strconv.Itoa(p.Chain) + "." + strconv.FormatInt(p.N, 10)
}

// auditPlace reads the parameter before of the audit log: microseconds, chain and row.
func (q *query) auditPlace() (p store.AuditPlace) {
	v := q.word("before")
	if v == "" {
		return p
	}
	var n [3]int64
	parts := strings.Split(v, ".")
	for i := range parts {
		var err error
		if i < len(n) {
			n[i], err = strconv.ParseInt(parts[i], 10, 64)
		}
		if err != nil || len(parts) != len(n) || n[i] < 0 || i == 0 && n[0] > 1<<53 || i == 1 && n[1] > 64 {
			q.bad("before", "%q is not a place in the log; give the next of the page before", v)
			return p
		}
	}
	return store.AuditPlace{At: time.UnixMicro(n[0]), Chain: int(n[1]), N: n[2]}
}

// verifyTimeout bounds a verification, which reads the whole audit log.
const verifyTimeout = 2 * time.Minute

type verifyRequest struct {
	// Heads are those of an earlier verification.
	Heads []store.AuditHead `json:"heads"`
}

// verify recomputes the hashes of the audit log, one verification at a time. A POST also compares the log with earlier heads.
func (a *API) verify(x *exchange) error {
	var body verifyRequest
	if x.r.Method == http.MethodPost {
		if err := x.body(&body); err != nil {
			return err
		}
	}
	select {
	case a.verifying <- struct{}{}:
		defer func() { <-a.verifying }()
	default:
		return &task.Error{Kind: task.RateLimited, Msg: "another verification is under way", RetryAfter: 5 * time.Second}
	}
	ctx, cancel := a.within(x.r.Context(), verifyTimeout)
	defer cancel()
	chains, err := a.o.Store.VerifyAudit(ctx, body.Heads)
	if ctx.Err() != nil {
		return task.Errorf(task.Unavailable, "the audit log is too long to verify within 2 minutes; run holdfast audit verify on the database")
	} else if err != nil {
		return err
	}
	view := shown.Verified{Status: "intact", Broken: []shown.BrokenChain{}, Heads: []store.AuditHead{}}
	for _, c := range chains {
		if c.Length == 0 && c.Problem == "" {
			continue
		}
		view.Chains++
		view.Heads = append(view.Heads, store.AuditHead{Chain: c.Chain, Length: c.Length, Head: c.Head})
		view.Rows += c.Length - c.Removed
		if c.Problem != "" {
			view.Status = "broken"
			view.Broken = append(view.Broken, shown.BrokenChain{Chain: c.Chain, Row: c.Broken, Problem: c.Problem})
		}
	}
	slices.SortFunc(view.Broken, func(a, b shown.BrokenChain) int { return a.Chain - b.Chain })
	return x.ok(view)
}
