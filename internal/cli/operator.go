package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// operator acts through the admin API: of a server, or of this process on a database. An id is the public id of a task, or its UUID. An
// unknown id is task.NotFound. A public id that several callers use is task.Invalid, and the message says so. While the server or the
// database is away, every call fails with task.Unavailable; later calls work again.
type operator struct {
	api    *adminclient.Client
	reason string // of its acts, for the audit log
}

// OperatorAPI is the admin API in this process.
type OperatorAPI interface {
	http.Handler
	Close()
}

// withOperator opens the admin API of a server for one command, or that of this process on the database.
func (c *command) withOperator(cmd *cobra.Command, do func(context.Context, *operator) error) error {
	database := ""
	if f := cmd.Flags().Lookup("database-url"); f != nil {
		database = f.Value.String()
	}
	ctx := cmd.Context()
	api, err := c.openServer(ctx, database)
	if err != nil {
		return err
	}
	if api == nil {
		cfg, err := c.loadForOperator(configFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		_, opened := c.during("opening the database")
		local, err := c.deps.OpenOperator(ctx, cfg, newQuietLogger(c.Err, cfg.Log))
		opened()
		if err != nil {
			return err
		}
		defer local.Close()
		api = adminclient.Local(local)
	}
	op := &operator{api, cmp.Or(c.reason, cmd.CommandPath())}
	if !c.watches {
		return do(ctx, op)
	}
	for away := (outage{c: c}); ; {
		again, err := away.over(ctx, do(ctx, op))
		if err == nil && !again {
			err = sleep(ctx, watchPause)
		}
		if err != nil {
			return err
		}
	}
}

// watchPause is how long --watch shows the same.
const watchPause = 2 * time.Second

// operate makes a verb of what it does with the admin API.
func (c *command) operate(do func(ctx context.Context, op *operator, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error { return do(ctx, op, args) })
	}
}

// account returns the caller for the audit log.
func account() task.Caller {
	c := task.Caller{Method: task.MethodOperator, Subject: nameOf(user.Current())}
	c.Address, _ = os.Hostname()
	return c
}

// nameOf returns the name of an account. An image without /etc/passwd knows only its number.
func nameOf(u *user.User, err error) string {
	if err != nil || u.Username == "" {
		return "uid " + strconv.Itoa(os.Getuid())
	}
	return u.Username
}

func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// page is how many items a request asks for.
const page = 500

// paged reads a list of at most limit items page by page. into returns what a page adds, and where the next one continues.
func paged[T, P any](ctx context.Context, o *operator, path string, q url.Values, limit int, into func(*P) ([]T, string)) (out []T, err error) {
	out = []T{}
	for len(out) < limit {
		q.Set("limit", strconv.Itoa(min(page, limit-len(out))))
		var got P
		if err := o.api.Get(ctx, path, q, &got); err != nil {
			return nil, err
		}
		items, next := into(&got)
		if out = append(out, items...); next == "" {
			break
		}
		q.Set("before", next)
	}
	return out, nil
}

// tasks returns the newest tasks of a filter first.
func (o *operator) tasks(ctx context.Context, filter url.Values, limit int) ([]shown.Task, error) {
	return paged(ctx, o, "/tasks", maps.Clone(filter), limit, func(p *shown.TasksPage) ([]shown.Task, string) { return p.Tasks, p.Next })
}

// header returns a task as its events need it.
func header(t *shown.Task) *task.Task {
	return &task.Task{
		ID: t.ID, PublicID: t.TaskID, Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner, ContextID: t.ContextID, Dialect: t.Dialect,
		CreatedAt: t.CreatedAt, LastSeq: t.LastSeq, Direct: t.Direct, Status: task.Status{State: t.State, At: t.StatusAt},
	}
}

// find returns a task without its messages and artifacts.
func (o *operator) find(ctx context.Context, id string) (*shown.TaskDetail, error) {
	d := &shown.TaskDetail{}
	return d, o.api.Get(ctx, adminclient.OfTask(id), nil, d)
}

// whole reads the log of a task, and folds it as the server does.
func (o *operator) whole(ctx context.Context, h *shown.Task) (*task.Task, error) {
	t := store.Empty(header(h))
	for after := task.Seq(0); after < h.LastSeq; {
		evs, err := o.events(ctx, h, after)
		switch {
		case err != nil:
			return nil, err
		case len(evs) == 0:
			return nil, fmt.Errorf("the log of %s was deleted meanwhile", h.TaskID)
		}
		for _, e := range evs {
			if after = e.Seq; e.Seq > h.LastSeq {
				break
			}
			t.LastSeq = e.Seq - 1 // retention may have deleted the artifacts before
			if err := t.Apply(e.Event); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// logged is an event of a log.
type logged struct {
	*task.Event
	stored *shown.Event // as the server sent it
}

// events returns the next events of every kind with a seq above after, oldest first. It returns none at the end of the log.
func (o *operator) events(ctx context.Context, t *shown.Task, after task.Seq) ([]*logged, error) {
	var got shown.LogPage
	q := query("after", strconv.FormatInt(int64(after), 10), "limit", strconv.Itoa(page))
	if err := o.api.Get(ctx, adminclient.OfTask(t.ID.String(), "log"), q, &got); err != nil {
		if errors.Is(err, task.NotFound) {
			return nil, nil // a deleted log has no events
		}
		return nil, err
	}
	of := &store.AdminTask{Task: header(t)}
	out := make([]*logged, len(got.Events))
	for i := range got.Events {
		e := &got.Events[i]
		decoded, err := of.Decoded(&e.AdminEvent)
		if err != nil {
			return nil, err
		}
		out[i] = &logged{decoded, e}
	}
	return out, nil
}

// acted is the answer of an action on a task.
type acted struct {
	Outcome       string      `json:"outcome"`
	NewTask       string      `json:"new_task"`
	ExportedLines int         `json:"exported_lines"`
	Task          *shown.Task `json:"task"` // after the action
}

// act posts an action on a task.
func (o *operator) act(ctx context.Context, id string, body map[string]any, parts ...string) (*acted, error) {
	did := &acted{}
	return did, o.post(ctx, adminclient.OfTask(id, parts...), body, did)
}

// post acts, for the reason of the verb unless the body has one.
func (o *operator) post(ctx context.Context, path string, body map[string]any, into any) error {
	if body == nil {
		body = map[string]any{}
	}
	if body["reason"] == nil {
		body["reason"] = o.reason
	}
	return o.api.Post(ctx, path, body, into)
}
