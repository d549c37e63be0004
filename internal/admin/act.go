package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// The names of the actions.
const (
	actCancel    = "cancel"
	actRetry     = "retry"
	actHold      = "hold"
	actRelease   = "release"
	actPurge     = "purge"
	actRedeliver = "redeliver"
	actDisable   = "disable"
	actEnable    = "enable"
)

// The outcomes of actions.
const (
	outcomeDue      = "due"      // of a webhook: its delivery starts now
	outcomeNothing  = "nothing"  // to deliver
	outcomeDisabled = "disabled" // of a webhook: no delivery until it is enabled
	outcomeEnabled  = "enabled"  // of a webhook that has nothing to deliver

	outcomeCanceled  = "canceled"
	outcomeRequested = "requested" // its worker was asked to end it
	outcomeEnded     = "ended"     // it had ended otherwise; a session has ended
	outcomeHurried   = "hurried"   // its next attempt is due now
	outcomeSent      = "sent"      // a new task was created from it
	outcomeHeld      = "held"
	outcomeReleased  = "released"
	outcomePurged    = "purged"
	outcomeAnswered  = "answered"
	outcomeNone      = "none" // it has no webhook
)

// options are the members of an action's request besides the reason.
type options struct {
	// Last makes a retry send the last message of the client instead of the first.
	Last bool `json:"last,omitempty"`
	// From is the first event that a redelivery repeats; 0: it begins with the first undelivered one.
	From task.Seq `json:"from,omitempty"`
}

func (o *options) check(action string) error {
	switch {
	case o.Last && action != actRetry:
		return web.Invalid("last", "is for the action retry only")
	case o.From != 0 && action != actRedeliver:
		return web.Invalid("from", "is for the action redeliver only")
	case o.From < 0:
		return web.Invalid("from", "must not be negative")
	}
	return nil
}

// outcome is what an action did.
type outcome struct {
	Outcome string `json:"outcome"`
	// NewTask is the UUID of the task that a retry has created.
	NewTask  string           `json:"new_task,omitempty"`
	Webhooks []webhookOutcome `json:"webhooks,omitempty"`
	// ExportedLines is how many lines a purge has deleted from the exports of this machine.
	ExportedLines int `json:"exported_lines,omitempty"`

	skipped bool // there was nothing to do
}

type webhookOutcome struct {
	ConfigID string `json:"config_id"`
	Outcome  string `json:"outcome"`
}

// act is an action on a task, or on one of its webhooks (config; "": all of them).
type act struct {
	op      *store.Operator
	task    *store.AdminTask
	config  string
	options options
	key     string // makes a repeated action find what the first one has created; "": none
	// job says that a job acts, which purges the exports at its end.
	job bool
}

type action struct {
	right   Right
	webhook bool
	do      func(a *API, ctx context.Context, on *act) (*outcome, error)
}

// actions are the actions on one task, which jobs apply to many.
var actions = map[string]action{
	actCancel:    {Act, false, (*API).cancel},
	actRetry:     {Act, false, (*API).retry},
	actHold:      {Act, false, (*API).hold},
	actRelease:   {Act, false, (*API).release},
	actPurge:     {Administer, false, (*API).purge},
	actRedeliver: {Act, true, (*API).redeliver},
	actDisable:   {Act, true, (*API).disable},
	actEnable:    {Act, true, (*API).enable},
}

// maxReason bounds a reason, in bytes.
const maxReason = 1000

// reasoned checks a reason and makes it that of the operator.
func (x *exchange) reasoned(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "" && x.reasonNeeded():
		return web.Invalid("reason", "must say why you act; the audit log keeps it")
	case len(reason) > maxReason || !utf8.ValidString(reason) || strings.ContainsRune(reason, 0):
		return web.Invalid("reason", fmt.Sprintf("must be UTF-8 without NUL and at most %d bytes", maxReason))
	}
	by := x.who.Caller
	by.Reason = reason
	x.op = x.op.As(by)
	return nil
}

// reasonNeeded reports whether the operator has shown a credential. An open server is for trying things out.
func (x *exchange) reasonNeeded() bool { return x.who.Caller.Subject != "" }

type actRequest struct {
	Reason string `json:"reason"`
	options
}

type actReply struct {
	outcome
	// Task is the task after the action; absent if it was purged.
	Task *shown.Task `json:"task,omitempty"`
}

// single serves an action on one task.
func (a *API) single(name string) func(x *exchange) error {
	return func(x *exchange) error {
		var body actRequest
		if err := x.body(&body); err != nil {
			return err
		}
		if err := body.check(name); err != nil {
			return err
		}
		if err := x.reasoned(body.Reason); err != nil {
			return err
		}
		t, err := x.found()
		if name == actPurge && task.KindOf(err) == task.NotFound {
			if err := a.purgeLeft(x); err != nil {
				return err
			}
			return err
		}
		if err != nil {
			return err
		}
		on := &act{op: x.op, task: t, config: x.r.PathValue("config"), options: body.options}
		if on.key, err = x.idempotencyKey(); err != nil {
			return err
		}
		did, err := actions[name].do(a, x.ctx, on)
		if err != nil {
			return err
		}
		reply := actReply{outcome: *did}
		if did.Outcome != outcomePurged {
			if reply.Task, err = a.viewNow(x, t.Task.ID); err != nil {
				return err
			}
		}
		return x.ok(reply)
	}
}

// idempotencyKey returns the key of a request as the store keeps it.
func (x *exchange) idempotencyKey() (string, error) {
	values := x.r.Header.Values("Idempotency-Key")
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1 || values[0] == "" || len(values[0]) > 255:
		return "", web.Invalid("Idempotency-Key", "must be given once, with 1 to 255 bytes")
	}
	return engine.OperatorKeys + values[0], nil
}

func (a *API) cancel(ctx context.Context, on *act) (*outcome, error) {
	if !on.task.Task.Status.State.Terminal() {
		ended, err := on.op.Cancel(ctx, on.task.Task, nil)
		switch {
		case err == nil && ended:
			return &outcome{Outcome: outcomeCanceled}, nil
		case err == nil:
			return &outcome{Outcome: outcomeRequested}, nil
		case task.KindOf(err) != task.NotCancelable:
			return nil, err
		}
		// It has ended by itself at the same moment.
		t, err := on.op.Find(ctx, on.task.Task.ID.String())
		if err != nil {
			return nil, err
		}
		on.task = t
	}
	if on.task.Task.Status.State == task.StateCanceled {
		return &outcome{Outcome: outcomeCanceled}, nil
	}
	return &outcome{Outcome: outcomeEnded, skipped: true}, nil
}

// retrier is the store of the engine's operations of operators, whose audit entries name the operator.
type retrier struct {
	*store.Store
	op *store.Operator
}

// Hurry implements engine.OperatorStore.
func (r retrier) Hurry(ctx context.Context, h *task.Task) (hurried, owned bool, err error) {
	return r.op.Hurry(ctx, h)
}

func (a *API) operator(op *store.Operator) *engine.Operator {
	return engine.NewOperator(retrier{a.o.Store, op}, op.By())
}

func (a *API) retry(ctx context.Context, on *act) (*outcome, error) {
	again, err := a.operator(on.op).Retry(ctx, on.task.Task, on.options.Last, on.key)
	if err != nil {
		return nil, err
	}
	if again.ID == on.task.Task.ID {
		return &outcome{Outcome: outcomeHurried}, nil
	}
	return &outcome{Outcome: outcomeSent, NewTask: again.ID.String()}, nil
}

func (a *API) hold(ctx context.Context, on *act) (*outcome, error) {
	if !on.task.HeldAt.IsZero() {
		return &outcome{Outcome: outcomeHeld}, nil
	}
	return &outcome{Outcome: outcomeHeld}, on.op.Hold(ctx, on.task.Task.ID, true)
}

func (a *API) release(ctx context.Context, on *act) (*outcome, error) {
	if on.task.HeldAt.IsZero() {
		return &outcome{Outcome: outcomeReleased}, nil
	}
	return &outcome{Outcome: outcomeReleased}, on.op.Hold(ctx, on.task.Task.ID, false)
}

func (a *API) purge(ctx context.Context, on *act) (*outcome, error) {
	id := on.task.Task.ID
	held, err := a.o.Retention.Erase(ctx, id, on.op.View)
	if err != nil {
		return nil, err
	}
	if held {
		return &outcome{Outcome: outcomeHeld, skipped: true}, nil
	}
	did := &outcome{Outcome: outcomePurged}
	if !on.job {
		did.ExportedLines, err = a.purgeLines(ctx, on.op, id)
	}
	return did, err
}

// purgeLines deletes the lines of a task that the operator may see from the exports.
func (a *API) purgeLines(ctx context.Context, op *store.Operator, id task.ID) (lines int, err error) {
	return a.o.Retention.PurgeExports(ctx, func(t *task.Task) bool { return t.ID == id && op.Sees(t) })
}

// purgeLeft deletes the lines of a task from the exports that a purge has left that was cut off after it had deleted the task.
func (a *API) purgeLeft(x *exchange) error {
	id, bad := task.ParseID(x.r.PathValue("id"))
	if bad != nil {
		return nil //nolint:nilerr // the id that a client chose no longer says which task it was
	}
	_, err := a.purgeLines(x.ctx, x.op, id)
	return err
}

// maxWebhooks is more than a task may have.
const maxWebhooks = 10_000

// onWebhooks acts on one webhook of a task, or on all.
func onWebhooks(ctx context.Context, on *act, do func(config string) (string, error)) (*outcome, error) {
	configs := []string{on.config}
	if on.config == "" {
		rows, err := on.op.Pushes(ctx, store.PushFilter{Task: on.task.Task.ID, Limit: maxWebhooks})
		if err != nil {
			return nil, err
		}
		configs = nil
		for i := range rows {
			configs = append(configs, rows[i].Config.ID)
		}
	}
	out := &outcome{Outcome: outcomeNone, skipped: true}
	for _, config := range configs {
		did, err := do(config)
		if err != nil {
			if task.KindOf(err) == task.NotFound {
				err = task.Errorf(task.NotFound, "the task has no webhook %q, or no such event", config)
			}
			return nil, err
		}
		out.Outcome, out.skipped = did, false
		out.Webhooks = append(out.Webhooks, webhookOutcome{config, did})
	}
	return out, nil
}

func (a *API) redeliver(ctx context.Context, on *act) (*outcome, error) {
	return onWebhooks(ctx, on, func(config string) (string, error) {
		due, disabled, err := on.op.Redeliver(ctx, on.task.Task.ID, config, on.options.From)
		switch {
		case disabled:
			return outcomeDisabled, err
		case due:
			return outcomeDue, err
		}
		return outcomeNothing, err
	})
}

func (a *API) disable(ctx context.Context, on *act) (*outcome, error) {
	return onWebhooks(ctx, on, func(config string) (string, error) {
		found, err := on.op.DisablePush(ctx, on.task.Task.ID, config, cmp.Or(on.op.By().Reason, "by an operator"))
		if err == nil && !found {
			err = task.NotFound
		}
		return outcomeDisabled, err
	})
}

func (a *API) enable(ctx context.Context, on *act) (*outcome, error) {
	return onWebhooks(ctx, on, func(config string) (string, error) {
		due, err := on.op.EnablePush(ctx, on.task.Task.ID, config)
		if due {
			return outcomeDue, err
		}
		return outcomeEnabled, err
	})
}

type answerRequest struct {
	Reason   string          `json:"reason"`
	Text     string          `json:"text"`
	Parts    []partView      `json:"parts"`
	Metadata json.RawMessage `json:"metadata"`
}

// partView is a part of a message, with exactly one of text, raw, url and data.
type partView struct {
	Text      *string         `json:"text"`
	Raw       []byte          `json:"raw"`
	URL       string          `json:"url"`
	Data      json.RawMessage `json:"data"`
	Filename  string          `json:"filename"`
	MediaType string          `json:"media_type"`
	Metadata  json.RawMessage `json:"metadata"`
}

// maxParts bounds the parts of an answer.
const maxParts = 100

func (r *answerRequest) message() (*task.Message, error) {
	m := &task.Message{Role: task.RoleUser, Metadata: r.Metadata}
	switch {
	case r.Text == "" && len(r.Parts) == 0:
		return nil, web.Invalid("text", "give a text, or parts")
	case r.Text != "" && len(r.Parts) > 0:
		return nil, web.Invalid("parts", "cannot be combined with text; make the text a part")
	case r.Text != "":
		m.Parts = []task.Part{task.Text(r.Text)}
	case len(r.Parts) > maxParts:
		return nil, web.Invalid("parts", fmt.Sprintf("must have at most %d elements", maxParts))
	}
	if err := object("metadata", r.Metadata); err != nil {
		return nil, err
	}
	for i := range r.Parts {
		p, at := &r.Parts[i], fmt.Sprintf("parts[%d]", i)
		out := task.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: p.Metadata}
		kinds := 0
		if p.Text != nil {
			out.Kind, out.Text = task.PartText, *p.Text
			kinds++
		}
		if p.Raw != nil {
			out.Kind, out.Raw = task.PartRaw, p.Raw
			kinds++
		}
		if p.URL != "" {
			out.Kind, out.URL = task.PartURL, p.URL
			kinds++
		}
		if p.Data != nil {
			out.Kind, out.Data = task.PartData, p.Data
			kinds++
		}
		if kinds != 1 {
			return nil, web.Invalid(at, "must have exactly one of text, raw, url and data")
		}
		if err := object(at+".metadata", p.Metadata); err != nil {
			return nil, err
		}
		m.Parts = append(m.Parts, out)
	}
	return m, nil
}

// object checks that a member is absent or a JSON object.
func object(name string, raw json.RawMessage) error {
	if raw != nil && (len(raw) == 0 || raw[0] != '{') {
		return web.Invalid(name, "must be a JSON object")
	}
	return nil
}

// answer sends a message to a task that waits for its client, in the client's name. The audit log names the operator.
func (a *API) answer(x *exchange) error {
	var body answerRequest
	if err := x.body(&body); err != nil {
		return err
	}
	message, err := body.message()
	if err != nil {
		return err
	}
	if err := x.reasoned(body.Reason); err != nil {
		return err
	}
	key, err := x.idempotencyKey()
	if err != nil {
		return err
	}
	t, err := x.found()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.ctx, 10*time.Second)
	defer cancel()
	if err := a.operator(x.op).Answer(ctx, t.Task, message, key); err != nil {
		return err
	}
	view, err := a.viewNow(x, t.Task.ID)
	if err != nil {
		return err
	}
	return x.ok(actReply{outcome{Outcome: outcomeAnswered}, view})
}

// viewNow shows a task as an act has left it.
func (a *API) viewNow(x *exchange, id task.ID) (*shown.Task, error) {
	t, err := x.op.Find(x.ctx, id.String())
	if err != nil {
		return nil, err
	}
	views, err := a.o.viewTasks(x.ctx, t)
	if err != nil {
		return nil, err
	}
	return &views[0], nil
}
