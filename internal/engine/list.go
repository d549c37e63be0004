package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// countBound is the highest total that List counts to unless the client asks for an exact total. A
// total of countBound means countBound or more.
const countBound = 10_000

// List returns a page of the caller's tasks, newest status first. A task whose status changes
// between two pages moves to the front. The client finds it on the first page of its next listing.
func (v *View) List(ctx context.Context, r *ListRequest) (*Page, error) {
	l := &store.Listing{
		ContextID: r.ContextID, State: r.State, Since: r.Since, After: store.Newest, Limit: r.PageSize,
		History: r.WithHistory, Artifacts: r.WithArtifacts,
	}
	page := &Page{Size: r.PageSize}
	if r.PageToken != "" {
		at, ok := v.readToken(r, r.PageToken)
		if !ok {
			return nil, task.InvalidField("pageToken", "was not issued for this caller, agent and filter; list again without it")
		}
		l.After, page.Total = at.place, at.total
	}
	var (
		more bool
		err  error
	)
	if page.Tasks, more, err = v.store.List(ctx, l); err != nil {
		return nil, err
	}
	switch {
	case r.PageToken == "" && !more:
		page.Total = len(page.Tasks)
	case r.ExactTotal:
		page.Total, err = v.countAll(ctx, l)
	case r.PageToken == "":
		// Later pages read the total from their token.
		page.Total, err = v.store.Count(ctx, l, countBound)
	}
	if err != nil {
		return nil, err
	}
	if more {
		last := page.Tasks[len(page.Tasks)-1]
		page.NextToken = v.token(r, position{store.Place{At: last.Status.At, ID: last.ID}, page.Total})
	}
	return page, nil
}

// countWait is how long an exact count waits for earlier ones. Each of them may take up to the
// statement timeout.
const countWait = 10 * time.Second

// countAll counts without a bound, one list at a time per replica: a count may take seconds, and
// all callers share the connections. Callers queue for it. Each caller may have one count in the
// queue, so no caller can starve the others.
func (v *View) countAll(ctx context.Context, l *store.Listing) (int, error) {
	owner := v.caller.Owner()
	if _, counts := v.counters.LoadOrStore(owner, true); counts {
		return 0, &task.Error{Kind: task.RateLimited, Msg: "another exact count of yours is still running; wait for it, or list without Prefer: count=exact", RetryAfter: 2 * time.Second}
	}
	defer v.counters.Delete(owner)
	wait, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	select {
	case v.counting <- struct{}{}: // first come, first served
		defer func() { <-v.counting }()
		return v.store.Count(ctx, l, store.Uncounted)
	case <-wait.Done():
		return 0, &task.Error{Kind: task.RateLimited, Msg: "exact counts of other callers are running; retry, or list without Prefer: count=exact", RetryAfter: 2 * time.Second, Cause: ctx.Err()}
	}
}

// position is the content of a page token: the last task of its page, and the total.
type position struct {
	place store.Place
	total int
}

const (
	positionSize = 8 + 16 + 4
	macSize      = 16
)

// token encodes and signs a position. Without the key nobody can make or change a token. It is
// valid on every replica, but only for the same caller and filter.
func (v *View) token(r *ListRequest, p position) string {
	b := make([]byte, 0, positionSize+macSize)
	b = binary.BigEndian.AppendUint64(b, uint64(p.place.At.UnixMicro()))
	b = append(b, p.place.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(min(p.total, math.MaxInt32)))
	return base64.RawURLEncoding.EncodeToString(append(b, v.mac(r, b)...))
}

// readToken verifies a token and decodes its position.
func (v *View) readToken(r *ListRequest, token string) (p position, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != positionSize+macSize || !hmac.Equal(b[positionSize:], v.mac(r, b[:positionSize])) {
		return p, false
	}
	p.place.At = time.UnixMicro(int64(binary.BigEndian.Uint64(b)))
	p.place.ID = task.ID(b[8:24])
	p.total = int(binary.BigEndian.Uint32(b[24:]))
	return p, true
}

// mac signs a position for a caller and a filter. The page size and the parts of a task to show are
// not signed, so they may change from page to page.
func (v *View) mac(r *ListRequest, position []byte) []byte {
	h := hmac.New(sha256.New, v.opt.PageKey)
	var length [8]byte
	for _, part := range []string{v.caller.Tenant, v.caller.Subject, v.agent, r.ContextID} {
		// The length prefix keeps two different lists from giving the same bytes.
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = h.Write(length[:])
		_, _ = h.Write([]byte(part))
	}
	binary.BigEndian.PutUint64(length[:], uint64(r.Since.UnixMicro()))
	_, _ = h.Write(append(length[:], byte(r.State)))
	_, _ = h.Write(position)
	return h.Sum(nil)[:macSize]
}
