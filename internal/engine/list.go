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

// countBound is how far a list is counted for whom has not asked for more: a total of
// this number means that there are as many at least.
const countBound = 10_000

// List returns a page of the caller's tasks, newest status first. A task whose status
// changes between two pages moves to the front, where the first page of the next
// round finds it.
func (e *Engine) List(ctx context.Context, r *ListRequest) (*Page, error) {
	l := &store.Listing{
		Owner: e.owner(r.Caller), ContextID: r.ContextID, State: r.State, Since: r.Since, After: store.Newest, Limit: r.PageSize,
		History: r.WithHistory, Artifacts: r.WithArtifacts,
	}
	v := e.as(r.Caller)
	page := &Page{Size: r.PageSize}
	if r.PageToken != "" {
		at, ok := e.readToken(r, r.PageToken)
		if !ok {
			return nil, task.InvalidField("pageToken", "was not issued for this list")
		}
		l.After, page.Total = at.place, at.total
	}
	var (
		more bool
		err  error
	)
	if page.Tasks, more, err = v.List(ctx, l); err != nil {
		return nil, err
	}
	switch {
	case r.PageToken == "" && !more:
		page.Total = len(page.Tasks)
	case r.ExactTotal:
		page.Total, err = e.countAll(ctx, r, v, l)
	case r.PageToken == "":
		// Later pages have it from their token.
		page.Total, err = v.Count(ctx, l, countBound)
	}
	if err != nil {
		return nil, err
	}
	if more {
		last := page.Tasks[len(page.Tasks)-1]
		page.NextToken = e.token(r, position{store.Place{At: last.Status.At, ID: last.ID}, page.Total})
	}
	return page, nil
}

// How long an exact count waits for those before it, which take as long as a statement may.
const countWait = 10 * time.Second

// countAll counts without a bound, one list at a time: it may take seconds, and the connections are everybody's. Callers
// wait their turn, each with one list, so that none keeps the others from ever having it.
func (e *Engine) countAll(ctx context.Context, r *ListRequest, v Store, l *store.Listing) (int, error) {
	caller := [2]string{r.Principal.Tenant, r.Principal.Subject}
	if _, counts := e.counters.LoadOrStore(caller, true); counts {
		return 0, &task.Error{Kind: task.RateLimited, Msg: "another exact count of yours is under way", RetryAfter: 2 * time.Second}
	}
	defer e.counters.Delete(caller)
	wait, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	select {
	case e.counting <- struct{}{}: // in the order of their coming
		defer func() { <-e.counting }()
		return v.Count(ctx, l, store.Uncounted)
	case <-wait.Done():
		return 0, &task.Error{Kind: task.RateLimited, Msg: "other exact counts are under way", RetryAfter: 2 * time.Second, Cause: ctx.Err()}
	}
}

// position is what a page token holds: the last task of its page, and the total.
type position struct {
	place store.Place
	total int
}

const (
	positionSize = 8 + 16 + 4
	macSize      = 16
)

// token renders a position. Nobody without the key can make or change one, and it is
// good for the caller and the filter that it was made for, on every replica.
func (e *Engine) token(r *ListRequest, p position) string {
	b := make([]byte, 0, positionSize+macSize)
	b = binary.BigEndian.AppendUint64(b, uint64(p.place.At.UnixMicro()))
	b = append(b, p.place.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(min(p.total, math.MaxInt32)))
	return base64.RawURLEncoding.EncodeToString(append(b, e.mac(r, b)...))
}

// readToken checks a token and takes it apart.
func (e *Engine) readToken(r *ListRequest, token string) (p position, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != positionSize+macSize || !hmac.Equal(b[positionSize:], e.mac(r, b[:positionSize])) {
		return p, false
	}
	p.place.At = time.UnixMicro(int64(binary.BigEndian.Uint64(b)))
	p.place.ID = task.ID(b[8:24])
	p.total = int(binary.BigEndian.Uint32(b[24:]))
	return p, true
}

// mac signs a position for a caller and a filter. Sizes and what is shown of a task
// may change from page to page.
func (e *Engine) mac(r *ListRequest, position []byte) []byte {
	h := hmac.New(sha256.New, e.opt.PageKey)
	var length [8]byte
	for _, part := range []string{r.Principal.Tenant, r.Principal.Subject, r.Agent, r.ContextID} {
		// With its length, so that no two lists run together to the same bytes.
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = h.Write(length[:])
		_, _ = h.Write([]byte(part))
	}
	binary.BigEndian.PutUint64(length[:], uint64(r.Since.UnixMicro()))
	_, _ = h.Write(append(length[:], byte(r.State)))
	_, _ = h.Write(position)
	return h.Sum(nil)[:macSize]
}
