package dispatch

import (
	"slices"
	"unicode/utf8"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// prepare finds the agent of the request, has it admit the caller, and finds the extensions in
// force.
func (o *Runner) prepare(r *Request) error {
	if r.ambiguous != "" {
		return task.InvalidField(r.ambiguous, "is given more than once")
	}
	if tenant := r.Call.Tenant; tenant != "" && tenant != r.Agent {
		if !r.Common || o.agents[tenant] == nil {
			return task.InvalidField("tenant", "no agent of this name is served here")
		}
		r.Agent = tenant
	}
	if tenant := r.Call.PushTenant; tenant != "" && tenant != r.Agent {
		return task.InvalidField("configuration.taskPushNotificationConfig.tenant", "must be the agent of the message")
	}
	var err error
	if r.Caller, err = r.Admit(r.Agent); err != nil {
		return err
	}
	r.engine = o.opt.Engine(r.Caller, r.Agent)
	if err := o.count(r); err != nil {
		return err
	}
	agent := o.agents[r.Agent]
	if agent == nil {
		return nil
	}
	for _, e := range *agent.extensions.Load() {
		switch {
		case slices.Contains(r.Extensions, e.URI):
			r.active = append(r.active, e.URI)
		case e.Required && r.Codec.Traits().Extensions:
			return task.Errorf(task.ExtensionRequired, "the agent requires %s; name it in A2A-Extensions", e.URI)
		}
	}
	return nil
}

// maxKey bounds an Idempotency-Key, in bytes.
const maxKey = 255

func (o *Runner) prepareSend(r *Request, s *engine.SendRequest) error {
	if err := o.bound(r, s.Message); err != nil {
		return err
	}
	s.Dialect = r.Codec.Traits().Version
	traits := r.Codec.Traits()
	s.ContextMember, s.PartsMember = traits.ContextMember, traits.PartsMember
	s.MayReopen = traits.ReopensTasks && o.opt.ReopenTerminal
	if traits.AdoptsTaskIDs && o.opt.LegacyTaskIDs {
		if complaint := rawjson.IDFault(s.TaskID); complaint != "" {
			return task.InvalidField("message.taskId", "%s", complaint)
		}
		s.MayCreate = true
	}
	if s.WaitUnsaid && o.opt.ReturnByDefault {
		s.Wait = false
	}
	s.IdempotencyKey = r.IdempotencyKey
	s.Extensions, s.Trace = r.active, r.trace
	if len(s.IdempotencyKey) > maxKey || !utf8.ValidString(s.IdempotencyKey) {
		return task.InvalidField("Idempotency-Key", "must be UTF-8 and not longer than %d bytes", maxKey)
	}
	if agent := o.agents[r.Agent]; agent != nil && len(agent.Forward) > 0 {
		var err error
		s.Forwarded, err = r.forwarded(agent.Forward)
		return err
	}
	return nil
}

func prepareSubscribe(r *Request, s *engine.SubscribeRequest) error {
	if r.LastEventID == "" {
		return nil
	}
	after, err := task.ParsePosition(r.LastEventID)
	if err != nil {
		return task.InvalidField("Last-Event-ID", "must be an id that a stream of this task has sent")
	}
	s.Resume, s.After = true, after
	return nil
}
