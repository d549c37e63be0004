package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// kept are the steps of a turn that ended with a question or with calls of agents, as the task's state. The answer or the
// results are the next turn.
type kept struct {
	Turn    int    `json:"turn"`    // that asked or called
	Carried int    `json:"carried"` // how many of its rounds belong to earlier turns
	Before  spent  `json:"before"`  // that of these turns since the client's newest message
	Steps   []step `json:"steps"`
}

// spent is what turns have used up.
type spent struct {
	Calls int   `json:"calls"`
	Usage usage `json:"usage"`
}

// keep stores the steps for the next turn.
func (s *steps) keep(ctx context.Context) error {
	raw, err := json.Marshal(kept{s.run.Turn, s.carried, s.before, s.shortened()})
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	_, err = s.run.Memory.SetState(ctx, executor.OfTask, raw, executor.AnyVersion)
	return err
}

// maxKept bounds the results that wait for an answer, in bytes: a state has a limit of 256 KiB.
const maxKept = 128 << 10

// shortened returns the steps with results that fit into a state together: the longest ones are cut. The next turn does
// without the model's encrypted reasoning.
func (s *steps) shortened() []step {
	out := slices.Clone(s.log)
	for i := range out {
		if r := out[i].Said; r != nil && len(r.Thoughts) > 0 {
			out[i].Said = &round{Text: r.Text, Usage: r.Usage, Calls: r.Calls, Images: r.Images}
		}
	}
	for most := maxKept; ; most /= 2 {
		total := 0
		for i := range out {
			if r := out[i].Result; r != nil {
				if len(r.Text) > most {
					out[i].Result = &result{cutTo(r.Text, most), r.Error}
				}
				total += len(out[i].Result.Text)
			}
		}
		if total <= maxKept || most <= len(wasCut) {
			return out
		}
	}
}

// restore reads the steps of an earlier turn that asked, or of this turn if its run ended just before the question.
func (s *steps) restore(ctx context.Context) (asked bool, err error) {
	stored, err := s.run.Memory.State(ctx, executor.OfTask)
	if err != nil {
		return false, fmt.Errorf("read the state: %w", err)
	}
	if stored.Value == nil {
		return false, nil
	}
	var k kept
	if err := json.Unmarshal(stored.Value, &k); err != nil {
		return false, fmt.Errorf("read the state: %w", err)
	}
	for i := range k.Steps {
		if err := s.apply(k.Steps[i]); err != nil {
			return false, err
		}
	}
	s.carried, s.before = k.Carried, k.Before
	if k.Turn == s.run.Turn {
		return true, nil
	}
	if s.run.Input != nil { // the client has said nothing
		s.before = spent{s.calls(), s.usage()}
	} else {
		s.before = spent{}
	}
	s.carried = len(s.rounds)
	return false, nil
}

// ask ends the run with the question whether calls may be made.
func (s *steps) ask(ctx context.Context, about []place, w *writer) error {
	if err := w.pause(); err != nil {
		return err
	}
	if err := s.keep(ctx); err != nil {
		return err
	}
	type wanted struct {
		ID        string `json:"id"`
		Tool      string `json:"tool"`
		Arguments any    `json:"arguments"`
	}
	var question strings.Builder
	question.WriteString("The agent asks for your approval of:\n")
	list := make([]wanted, len(about))
	for i, at := range about {
		c := s.call(at)
		list[i] = wanted{c.ID, c.Name, c.Arguments}
		var object map[string]jsontext.Value
		if wire.Unmarshal([]byte(c.Arguments), &object) == nil {
			list[i].Arguments = json.RawMessage(c.Arguments)
		}
		fmt.Fprintf(&question, "- %s %s\n", c.Name, web.Excerpt([]byte(c.Arguments)))
	}
	question.WriteString("Answer yes or no.")
	properties := map[string]any{}
	for i := range list {
		name := list[i].ID
		if len(list) == 1 {
			name = approved
		}
		properties[name] = map[string]string{"type": "boolean", "title": list[i].Tool}
	}
	data, err := json.Marshal(map[string]any{
		"approvals":       list,
		"requestedSchema": map[string]any{"type": "object", "properties": properties, "required": slices.Sorted(maps.Keys(properties))},
	})
	if err != nil {
		return fmt.Errorf("encode the question: %w", err)
	}
	return s.out.Status(ctx, task.StateInputRequired, &task.Message{
		Role: task.RoleAgent, Metadata: w.metadata(),
		Parts: []task.Part{task.Text(question.String()), {Kind: task.PartData, Data: data}},
	})
}

// verdict is the client's answer to the question.
type verdict struct {
	all  bool
	each map[string]bool // by the id of the call
}

func (v *verdict) approves(id string) bool {
	if approved, ok := v.each[id]; ok {
		return approved
	}
	return v.all
}

// approved is the member of an answer that decides about all calls.
const approved = "approved"

// agreements are the texts that approve. Everything else does not.
var agreements = []string{"yes", "y", "ok", "okay", "true", "approve", "approved", "confirm", "confirmed"}

// decide reads the client's answer: text, or data with approved, or with the ids of calls. If it says both yes and no, the
// answer is no.
func decide(m *task.Message) verdict {
	var v verdict
	said := false
	say := func(yes bool) { v.all, said = yes && (v.all || !said), true }
	for i := range m.Parts {
		p := &m.Parts[i]
		switch p.Kind {
		case task.PartText:
			say(isYes(p.Text))
		case task.PartData:
			for name, value := range members(p.Data) {
				yes := agrees(value)
				if name == approved {
					say(yes)
					continue
				}
				if v.each == nil {
					v.each = map[string]bool{}
				}
				v.each[name] = yes
			}
		case task.PartRaw, task.PartURL:
		}
	}
	return v
}

func isYes(text string) bool {
	return slices.Contains(agreements, strings.ToLower(strings.Trim(text, " \t\r\n.!")))
}

// agrees reads an answer about one call: true, a text, or an object with approved.
func agrees(v jsontext.Value) bool {
	if v.Kind() == jsontext.KindBeginObject {
		v = members(v)[approved]
	}
	return v.Kind() == jsontext.KindTrue || isYes(unquote(v))
}

// members returns the members of an object; anything else has none.
func members(v []byte) map[string]jsontext.Value {
	var in map[string]jsontext.Value
	if wire.Unmarshal(v, &in) != nil {
		return nil
	}
	return in
}

const notApproved = "The user did not approve this call. It was not made."
