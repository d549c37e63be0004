package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// AgentTool is an agent of the server that the model may call. Each call ends the run; the results begin the next turn.
type AgentTool struct {
	Name        string // configured name of the agent
	Description string // for the model
	Approve     bool   // the client must approve each call
	Relay       bool   // the client sees the agent's progress
}

// agentSchema is that of the arguments.
var agentSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"message":{"type":"string","description":"What the agent should do, with all that it needs to know: it does not see this conversation."},` +
	`"task":{"type":"string","description":"Only to answer a question of the agent: the task that asked."}` +
	`},"required":["message"]}`)

// addAgents adds the configured agents as tools.
func (b *toolbox) addAgents(agents []AgentTool) error {
	for i := range agents {
		t := &agents[i]
		if err := b.put(&tool{
			name: functionName("agent__" + t.Name), agent: t.Name, text: t.Description, schema: agentSchema, approve: t.Approve, relays: t.Relay,
		}); err != nil {
			return err
		}
	}
	return nil
}

// callID names a call in the event. The model's own ids are not unique in a task, and may be long.
func (at place) callID() string { return fmt.Sprintf("%d.%d", at.Round, at.Call) }

// returned returns the result of a call of an agent that an earlier turn has made, or nil.
func (s *steps) returned(at place) *result {
	if s.run.Input == nil {
		return nil
	}
	for i := range s.run.Input.Results {
		if r := &s.run.Input.Results[i]; r.ID == at.callID() {
			return new(resultOf(r))
		}
	}
	return nil
}

// delegate makes calls of agents, which ends the run. Calls with wrong arguments have results at once; if there are no
// others, the run goes on.
func (s *steps) delegate(ctx context.Context, about []place, box *toolbox, w *writer) (ended bool, err error) {
	var calls []executor.Call
	for _, at := range about {
		var in struct {
			Message string `json:"message"`
			Task    string `json:"task"`
		}
		to := box.find(s.call(at).Name)
		c := executor.Call{ID: at.callID(), Relay: to.relays}
		wrong := ""
		switch bad := wire.Unmarshal([]byte(s.call(at).Arguments), &in); {
		case bad != nil, strings.TrimSpace(in.Message) == "":
			wrong = "The arguments need a message, which is text. The agent was not called."
		case in.Task == "":
			c.Agent = to.agent
		default:
			if _, err := task.ParseID(in.Task); err != nil {
				wrong = "There is no such task. Leave it out to begin a new one. The agent was not called."
			}
			c.TaskID = in.Task
		}
		if wrong != "" {
			if err := s.record(ctx, step{Of: &at, Result: &result{wrong, true}}); err != nil {
				return false, err
			}
			continue
		}
		c.Message = &task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text(in.Message)}}
		calls = append(calls, c)
	}
	if len(calls) == 0 {
		return false, nil
	}
	if err := w.pause(); err != nil {
		return false, err
	}
	if err := s.keep(ctx); err != nil {
		return false, err
	}
	return true, s.out.Call(ctx, calls)
}

// resultOf returns the text of a result for the model.
func resultOf(r *executor.Result) result {
	var said []string
	add := func(parts []task.Part) {
		for i := range parts {
			if c, ok := contentOf(&parts[i], roleAssistant); ok {
				said = append(said, c.Text)
			}
		}
	}
	for i := range r.Artifacts {
		add(r.Artifacts[i].Parts)
	}
	if r.Message != nil {
		add(r.Message.Parts)
	}
	if r.Omitted > 0 {
		said = append(said, fmt.Sprintf("[%d bytes are left out here]", r.Omitted))
	}
	if r.Error != "" {
		said = append(said, r.Error)
	}
	text := strings.Join(said, "\n\n")
	switch {
	case r.State == task.StateCompleted && text == "":
		return result{"The agent has completed the task without an answer.", false}
	case r.State == task.StateCompleted:
		return result{cut(text), false}
	case r.State.Parked():
		how := fmt.Sprintf("\n\nThe agent waits for an answer (%s). To give one, call this tool with the task %s.", r.State, r.TaskID)
		return result{cut(text) + how, false}
	default:
		return result{cut(fmt.Sprintf("State of the task: %s\n\n%s", r.State, text)), true}
	}
}

// joined appends the steps to the conversation. After calls of agents, the conversation ends with what the model said
// before them; it and the calls are one message, because some models accept no two in a row.
func joined(conversation, steps []message) []message {
	last := len(conversation) - 1
	if last < 0 || len(steps) == 0 || conversation[last].Role != steps[0].Role || steps[0].Content != nil {
		return slices.Concat(conversation, steps)
	}
	first := steps[0]
	first.Content = conversation[last].Content
	return slices.Concat(conversation[:last], []message{first}, steps[1:])
}
