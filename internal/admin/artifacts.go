package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

type artifactsView struct {
	Artifacts []store.AdminArtifact `json:"artifacts"`
	More      bool                  `json:"more,omitempty"`
}

func (a *API) artifacts(x *exchange) error {
	limit := x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	t, err := x.found()
	if err != nil {
		return err
	}
	list, more, err := x.op.Artifacts(x.ctx, t, "", limit)
	if err != nil {
		return err
	}
	return x.ok(artifactsView{append([]store.AdminArtifact{}, list...), more})
}

// Bounds of the preview of an artifact, in bytes: of what is read, of one part, and of all parts together.
const (
	previewRead  = 8 << 20
	previewPart  = 128 << 10
	previewAll   = 512 << 10
	previewParts = 200
)

// piece is a part of an artifact, with its beginning.
type piece struct {
	Kind      string          `json:"kind"`
	MediaType string          `json:"media_type,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Bytes     int64           `json:"bytes"`
	Text      string          `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	URL       string          `json:"url,omitempty"`
	// Cut says that the text or the data is not here as a whole.
	Cut bool `json:"cut,omitempty"`
}

type artifactDetail struct {
	*store.AdminArtifact
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Extensions  []string        `json:"extensions,omitempty"`
	Parts       []piece         `json:"parts"`
	// Partial says that the artifact is so large that only its beginning was read.
	Partial bool `json:"partial,omitempty"`
}

var partKinds = map[task.PartKind]string{task.PartText: "text", task.PartRaw: "raw", task.PartURL: "url", task.PartData: "data"}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// artifact shows an artifact with the beginnings of its parts. It reads a bounded number of bytes, however large the artifact is.
func (a *API) artifact(x *exchange) error {
	t, found, err := x.artifact()
	if err != nil {
		return err
	}
	view := artifactDetail{AdminArtifact: found, Parts: []piece{}}
	read, shown := int64(0), int64(0)
	err = a.walk(x.ctx, x.op, t, found, func(chunk *task.Artifact) {
		view.Name, view.Description = cmp.Or(chunk.Name, view.Name), cmp.Or(chunk.Description, view.Description)
		if chunk.Metadata != nil {
			view.Metadata = chunk.Metadata
		}
		if chunk.Extensions != nil {
			view.Extensions = chunk.Extensions
		}
	}, func(n int, p *task.Part, fresh bool) error {
		if read += p.Size(); read > previewRead && n > 0 || n >= previewParts {
			view.Partial = true
			return errEnough
		}
		if fresh {
			view.Parts = append(view.Parts, piece{Kind: partKinds[p.Kind], MediaType: p.MediaType, Filename: p.Filename, Metadata: p.Metadata, URL: p.URL})
		}
		v := &view.Parts[n]
		v.Bytes += p.Size() - int64(len(p.URL)+len(p.Metadata))
		switch room := min(previewAll-shown, previewPart-int64(len(v.Text))); p.Kind {
		case task.PartText:
			if v.Cut {
				break
			}
			text := beginning(p.Text, room)
			v.Text, v.Cut = v.Text+text, len(text) < len(p.Text)
			shown += int64(len(text))
		case task.PartData:
			if v.Cut = int64(len(p.Data)) > room; !v.Cut {
				v.Data = p.Data
				shown += int64(len(p.Data))
			}
		case task.PartRaw, task.PartURL:
		}
		if read > previewRead {
			view.Partial = true
			return errEnough
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.ok(view)
}

// beginning returns the first bytes of a text, without half a character.
func beginning(s string, most int64) string {
	if int64(len(s)) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:max(most, 0)]
}

// artifact finds the artifact of the path.
func (x *exchange) artifact() (*store.AdminTask, *store.AdminArtifact, error) {
	t, err := x.found()
	if err != nil {
		return nil, nil, err
	}
	id := x.r.PathValue("artifact")
	if badText(id) || id == "" {
		return nil, nil, task.Errorf(task.NotFound, "the task has no such artifact")
	}
	list, _, err := x.op.Artifacts(x.ctx, t, id, 1)
	if err != nil {
		return nil, nil, err
	}
	if len(list) == 0 {
		return nil, nil, task.Errorf(task.NotFound, "the task has no such artifact")
	}
	return t, &list[0], nil
}

// walk folds the chunks of an artifact as task.Task.Apply does, but keeps none of them: part gets each piece of each part, and
// fresh says that the piece begins a part. errEnough ends it without an error.
func (a *API) walk(ctx context.Context, op *store.Operator, t *store.AdminTask, found *store.AdminArtifact, chunk func(*task.Artifact), part func(n int, p *task.Part, fresh bool) error) error {
	n, after, last := -1, found.Base-1, task.Part{}
	page := func() (more bool, err error) {
		account := a.o.Memory.Open(limit.Holder{Operator: true})
		defer account.Close()
		evs, more, err := op.Chunks(limit.WithAccount(ctx, account), t, found, after)
		if err != nil {
			return false, err
		}
		for i := range evs {
			e, err := t.Decoded(&evs[i])
			if err != nil {
				return false, err
			}
			after = e.Seq
			chunk(e.Artifact)
			parts := e.Artifact.Parts
			continues := e.Seq != found.Base && n >= 0 && len(parts) == 1 && last.Continues(&parts[0])
			for k := range parts {
				if !continues {
					n++
				}
				if err := part(n, &parts[k], !continues); err != nil {
					return false, err
				}
				last = parts[k]
				last.Text, last.Raw, last.Data = "", nil, nil
			}
		}
		return more, nil
	}
	for more := true; more; {
		var err error
		if more, err = page(); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
	}
	return nil
}

// artifactPart sends one part of an artifact as a file, in bounded memory.
func (a *API) artifactPart(x *exchange) error {
	want, err := strconv.Atoi(x.r.PathValue("part"))
	if err != nil || want < 0 {
		return web.Invalid("part", "must be the number of a part, from 0 on")
	}
	ctx, end, err := a.enter(x)
	if err != nil {
		return err
	}
	defer end()
	find, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	x.ctx = find
	t, found, err := x.artifact()
	if err != nil {
		return err
	}
	begun, rc := false, http.NewResponseController(x.w)
	name := found.ID
	err = a.walk(ctx, x.op, t, found, func(chunk *task.Artifact) { name = cmp.Or(chunk.Name, name) }, func(n int, p *task.Part, _ bool) error {
		switch {
		case n < want:
			return nil
		case n > want:
			return errEnough
		case p.Kind == task.PartURL:
			return task.Errorf(task.Unsupported, "part %d is a URL, which this server does not fetch", want)
		}
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if !begun {
			begun = true
			fileHeaders(x.w.Header(), name, p)
		}
		for _, b := range [][]byte{[]byte(p.Text), p.Raw, p.Data} {
			if _, err := x.w.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil && begun:
		// A file that ends too early must not look whole.
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case !begun:
		return task.Errorf(task.NotFound, "the artifact has no part %d", want)
	}
	return nil
}

// fileHeaders make a browser save what it gets, and never run it: an agent has written it.
func fileHeaders(h http.Header, name string, p *task.Part) {
	media, extension := "application/octet-stream", ""
	switch p.Kind {
	case task.PartText:
		media, extension = "text/plain; charset=utf-8", ".txt"
	case task.PartData:
		media, extension = "application/json", ".json"
	case task.PartRaw:
		if claimed, _, err := mime.ParseMediaType(p.MediaType); err == nil && shownAsMedia(claimed) {
			media = claimed
		}
	case task.PartURL:
	}
	file := fileName(p.Filename)
	if file == "" {
		file = cmp.Or(fileName(name), "artifact") + extension
	}
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": file}), "attachment"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// shownAsMedia reports whether the console shows files of a type in an element that runs nothing of them.
func shownAsMedia(media string) bool {
	kind, _, _ := strings.Cut(media, "/")
	return kind == "image" || kind == "audio" || kind == "video" || media == "application/pdf"
}

// fileName makes a file name of what an agent says: without a path, and without characters that hide what it is.
func fileName(s string) string {
	s = s[strings.LastIndexAny(s, `/\`)+1:]
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError || strings.ContainsRune(`<>:"|?*`, r) {
			return '_'
		}
		return r
	}, s)
	for len(s) > 150 {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimLeft(s, ".")
}

type usageView struct {
	Models []modelUsage `json:"models"`
}

type modelUsage struct {
	store.AdminUsage
	Cost float64 `json:"cost,omitempty"`
}

// usage shows the tokens that agents report, by model.
func (a *API) usage(x *exchange) error {
	t, err := x.found()
	if err != nil {
		return err
	}
	rows, err := x.op.Usage(x.ctx, t)
	if err != nil {
		return err
	}
	view := usageView{[]modelUsage{}}
	for _, u := range rows {
		view.Models = append(view.Models, modelUsage{u, a.o.Prices.ofUsage(&u)})
	}
	return x.ok(view)
}
