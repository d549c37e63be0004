package runapi

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// Limits of one page.
const (
	maxEntries  = 1000
	maxBytes    = 16 << 20
	defaultPage = 50
	maxPage     = 100
)

// parameters refuses parameters of the query that the path does not have, and repeated ones.
func (x *exchange) parameters(known ...string) error {
	for name, values := range x.query {
		if !slices.Contains(known, name) {
			return web.Invalid(name, "is not a parameter of this path")
		}
		if len(values) > 1 {
			return web.Invalid(name, "must be given once")
		}
	}
	return nil
}

// number reads a parameter.
func (x *exchange) number(name string, least, most, fallback int64) (int64, error) {
	text := x.query.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, web.Invalid(name, fmt.Sprintf("must be a number from %d to %d", least, most))
	}
	return n, nil
}

// bounds reads the bounds of a part of a conversation.
func (a *API) bounds(x *exchange) (b executor.Bounds, err error) {
	h := a.o.History[x.Run.Agent]
	count, err := x.number("count", 1, maxEntries, int64(cmp.Or(h.Count, wire.DefaultHistory)))
	if err != nil {
		return b, err
	}
	b.Count = int(count)
	if b.Bytes, err = x.number("bytes", 1, maxBytes, cmp.Or(h.Bytes, wire.DefaultHistoryBytes)); err != nil {
		return b, err
	}
	switch x.query.Get("progress") {
	case "", "false":
	case "true":
		b.Progress = true
	default:
		return b, web.Invalid("progress", "must be true or false")
	}
	b.Before, err = readPlace("before", x.query.Get("before"))
	return b, err
}

// history answers with what was said before the turn of the run.
func (a *API) history(x *exchange) error {
	if err := x.parameters("scope", "count", "bytes", "progress", "before"); err != nil {
		return err
	}
	of := executor.OfTask
	if name := x.query.Get("scope"); name != "" {
		var err error
		if of, err = scopeOf("scope", name); err != nil {
			return err
		}
	}
	within, err := a.bounds(x)
	if err != nil {
		return err
	}
	c := x.Claimed()
	doc, err := a.said(x, store.DialogueOf{
		Task: c.Task, Said: c.Said(), Begins: c.Begins(), Context: of == executor.OfContext, Bounds: within,
	})
	if err != nil {
		return err
	}
	return a.ok(x, doc)
}

// said reads a part of a conversation. Its bytes count before they are read.
func (a *API) said(x *exchange, of store.DialogueOf) (*wire.HistoryDocument, error) {
	if err := x.account.Reserve(x.ctx, of.Bytes); err != nil {
		return nil, err
	}
	said, err := a.o.Store.Dialogue(x.ctx, of)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(said) > 0 {
		next = place(task.Place{Task: said[0].Task, Seq: said[0].Seq})
	}
	doc := wire.NewHistory(of.Task.PublicID, said, next)
	return &doc, nil
}

// tasks lists the other tasks of the context.
func (a *API) tasks(x *exchange) error {
	if err := x.parameters("count", "before"); err != nil {
		return err
	}
	count, err := x.number("count", 1, maxPage, defaultPage)
	if err != nil {
		return err
	}
	before, err := readPlace("before", x.query.Get("before"))
	if err != nil {
		return err
	}
	list, err := a.o.Store.Siblings(x.ctx, x.Task(), before.Task, int(count))
	if err != nil {
		return err
	}
	doc := struct {
		Tasks []wire.TaskDocument `json:"tasks"`
		Next  string              `json:"next,omitempty"`
	}{Tasks: make([]wire.TaskDocument, len(list))}
	for i, h := range list {
		doc.Tasks[i] = wire.NewTask(h, nil)
	}
	if len(list) == int(count) {
		doc.Next = place(task.Place{Task: list[len(list)-1].ID})
	}
	return a.ok(x, doc)
}

// task answers with another task of the context, and what was said in it.
func (a *API) task(x *exchange) error {
	if err := x.parameters("count", "bytes", "progress", "before"); err != nil {
		return err
	}
	within, err := a.bounds(x)
	if err != nil {
		return err
	}
	h, err := a.o.Store.Sibling(x.ctx, x.Task(), x.r.PathValue("id"))
	if err != nil {
		return err
	}
	if !within.Before.Of(h.ID) {
		return web.Invalid("before", "must be the next of an answer about this task")
	}
	if !h.Status.State.Settled() {
		history := wire.NewHistory(h.PublicID, nil, "") // what a run says may change with another try
		return a.ok(x, wire.NewTask(h, &history))
	}
	end := h.LastSeq + 1
	history, err := a.said(x, store.DialogueOf{Task: h, Said: end, Begins: end, Bounds: within})
	if err != nil {
		return err
	}
	return a.ok(x, wire.NewTask(h, history))
}

// artifacts lists the artifacts of the task.
func (a *API) artifacts(x *exchange) error {
	if err := x.parameters("count", "after"); err != nil {
		return err
	}
	count, err := x.number("count", 1, maxPage, defaultPage)
	if err != nil {
		return err
	}
	after, err := readPlace("after", x.query.Get("after"))
	if err != nil {
		return err
	}
	list, err := a.o.Store.Artifacts(x.ctx, x.Task(), after.Seq, int(count))
	if err != nil {
		return err
	}
	doc := wire.ArtifactList{Artifacts: make([]wire.ListedArtifact, len(list))}
	for i, l := range list {
		doc.Artifacts[i] = wire.ListedArtifact{ArtifactID: l.ID, Name: l.Name, Chunks: l.Chunks, Bytes: l.Bytes, Last: l.Last}
	}
	if len(list) == int(count) {
		doc.Next = place(task.Place{Task: x.Task().ID, Seq: list[len(list)-1].Seq})
	}
	return a.ok(x, doc)
}

// artifact answers with the whole content of an artifact.
func (a *API) artifact(x *exchange) error {
	if err := x.parameters(); err != nil {
		return err
	}
	found, err := a.o.Store.Artifact(x.ctx, x.Task(), x.r.PathValue("id"))
	if err != nil {
		return err
	}
	return a.ok(x, wire.NewArtifact(found))
}

// records answers with what durable runs of the task have recorded.
func (a *API) records(x *exchange) error {
	if err := x.parameters("after"); err != nil {
		return err
	}
	after, err := x.number("after", 0, math.MaxInt64, 0)
	if err != nil {
		return err
	}
	doc, err := wire.Records(x.ctx, x.Run, task.Seq(after))
	if err != nil {
		return err
	}
	return a.ok(x, doc)
}

// place writes a place in a list for its next page. It is no secret: what a page may have does not depend on it.
func place(p task.Place) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(p.Task[:], uint64(p.Seq)))
}

func readPlace(field, text string) (task.Place, error) {
	if text == "" {
		return task.Place{}, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	const idSize = len(task.ID{})
	if err != nil || len(raw) != idSize+8 || raw[idSize]&0x80 != 0 {
		return task.Place{}, web.Invalid(field, "must be the next of an earlier answer")
	}
	return task.Place{Task: task.ID(raw[:idSize]), Seq: task.Seq(binary.BigEndian.Uint64(raw[idSize:]))}, nil
}
