package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var errNotJSON = errors.New("not valid JSON")

// cleanMessage and cleanArtifact make an executor's content storable. NUL characters become U+FFFD,
// and opaque JSON must be valid. The result shares no memory that the executor may change or reuse.
func (e *emitter) cleanMessage(m *task.Message) (err error) {
	m.ID = e.cleanText(m.ID)
	m.Extensions, m.References = e.cleanList(m.Extensions), e.cleanList(m.References)
	if m.Metadata, err = e.cleanShown("metadata", m.Metadata); err != nil {
		return err
	}
	m.Parts, err = e.cleanParts(m.Parts)
	return err
}

func (e *emitter) cleanArtifact(a *task.Artifact) (err error) {
	a.ID, a.Name, a.Description = e.cleanText(a.ID), e.cleanText(a.Name), e.cleanText(a.Description)
	a.Extensions = e.cleanList(a.Extensions)
	if a.Metadata, err = e.cleanShown("artifact.metadata", a.Metadata); err != nil {
		return err
	}
	a.Parts, err = e.cleanParts(a.Parts)
	return err
}

func (e *emitter) cleanParts(parts []task.Part) (_ []task.Part, err error) {
	parts = slices.Clone(parts)
	for i := range parts {
		p := &parts[i]
		p.Text, p.URL = e.cleanText(p.Text), e.cleanText(p.URL)
		p.Filename, p.MediaType = e.cleanText(p.Filename), e.cleanText(p.MediaType)
		p.Raw = bytes.Clone(p.Raw)
		if p.Data, err = e.cleanShown(fmt.Sprintf("parts[%d].data", i), p.Data); err != nil {
			return nil, err
		}
		if p.Metadata, err = e.cleanShown(fmt.Sprintf("parts[%d].metadata", i), p.Metadata); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// maxCause bounds the stored text of an error, in bytes.
const maxCause = 8 << 10

// credentials are those that code of agents has, and may have in its errors: our keys and run tokens, and JSON Web Tokens.
var credentials = regexp.MustCompile(`\b(?:hfk_|hfrun_)[A-Za-z0-9_-]{8,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)

// cleanCause makes the text of an error storable, without credentials. It cuts the middle out of a long one: the beginning
// says what failed, and the end is the newest output of the agent.
func (e *emitter) cleanCause(err error) string {
	if err == nil {
		return ""
	}
	text := credentials.ReplaceAllString(err.Error(), "[removed]")
	if len(text) > maxCause {
		text = text[:maxCause/4] + " … " + text[len(text)-maxCause*3/4:]
	}
	return e.cleanText(strings.ToValidUTF8(text, "\uFFFD"))
}

func (e *emitter) cleanList(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = e.cleanText(list[i])
	}
	return list
}

func (e *emitter) cleanText(s string) string {
	if strings.IndexByte(s, 0) < 0 {
		return s
	}
	e.logReplaced()
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// cleanShown cleans JSON that clients see.
func (e *emitter) cleanShown(member string, raw json.RawMessage) (json.RawMessage, error) {
	if task.Deeper(raw, task.MaxNesting) {
		return nil, fmt.Errorf("%s: nests deeper than %d levels, which clients over gRPC could not read", member, task.MaxNesting)
	}
	return e.cleanJSON(member, raw)
}

func (e *emitter) cleanJSON(member string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	out, replaced, err := storable(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	if replaced {
		e.logReplaced()
	}
	return json.RawMessage(out), nil
}

// storable returns a copy of JSON on one line, as an event of a stream requires. U+FFFD replaces
// each NUL character, which PostgreSQL cannot store, and each half of a surrogate pair. The copy is validated last, because the
// replacement may make two names of an object equal.
func storable(raw []byte) (out jsontext.Value, replaced bool, err error) {
	raw, replaced = rawjson.Repair(raw)
	out = bytes.Clone(raw)
	if out.Compact() != nil {
		return nil, false, errNotJSON
	}
	out, nul := rawjson.WithoutNUL(out)
	if !out.IsValid() {
		return nil, false, errNotJSON
	}
	return out, replaced || nul, nil
}

func (e *emitter) logReplaced() {
	e.r.pool.opt.Log.Warn("replaced characters of the agent's output that cannot be stored", "task_id", e.r.claim.Task.PublicID, "agent", e.r.agent.Name)
}
