package engine

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Push says how tasks may have webhooks.
type Push struct {
	// Check refuses a configuration that nothing may be sent for. It reads the URL, of which the engine only knows that it
	// begins as one of http. The member that is at fault is that, and the text of the error says why.
	Check func(ctx context.Context, c *task.PushConfig) error
	// MaxPerTask is how many a task may have; default 20.
	MaxPerTask int
	Artifacts  bool // artifact events are delivered, too
}

// Pushes are configurations of a task, as answers show them: without their secrets.
type Pushes struct {
	TaskID  string // public
	Configs []task.PushConfig
}

// SetPush adds a configuration to a task, or replaces the one with its id. Without one in the request the task's default
// one is deleted.
func (e *Engine) SetPush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := e.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Set == nil {
		_, err := e.as(r.Caller).DeletePush(ctx, h.ID, h.PublicID)
		return &Pushes{TaskID: h.PublicID}, err
	}
	if err := e.checkPush(ctx, r.Set); err != nil {
		return nil, err
	}
	c := e.pushFor(h, r.Set, r.Dialect)
	if r.Set.ID == "" && r.Set.Further {
		c.ID = uuid.NewString()
	}
	if err := e.as(r.Caller).SetPush(ctx, h.ID, c, e.opt.Push.MaxPerTask); err != nil {
		return nil, err
	}
	c.Token, c.Credentials = "", ""
	return &Pushes{TaskID: h.PublicID, Configs: []task.PushConfig{*c}}, nil
}

// GetPush finds the configuration that the request names, or else the default one, or else the oldest. task.NotFound: there
// is none, which is an answer too if the request may be answered so.
func (e *Engine) GetPush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := e.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	all, err := e.as(r.Caller).Pushes(ctx, h.ID)
	if err != nil {
		return nil, err
	}
	p := &Pushes{TaskID: h.PublicID}
	for i := range all {
		switch all[i].ID {
		case r.ConfigID:
			p.Configs = all[i : i+1]
			return p, nil
		case h.PublicID:
			p.Configs = all[i : i+1]
		}
	}
	switch {
	case r.ConfigID != "":
		return nil, task.Errorf(task.NotFound, "the task has no push notification configuration with this id")
	case p.Configs == nil && len(all) > 0:
		p.Configs = all[:1]
	case p.Configs == nil && !r.MayLack:
		return nil, task.Errorf(task.NotFound, "the task has no push notification configuration")
	}
	return p, nil
}

// ListPush lists the configurations of a task, the oldest first.
func (e *Engine) ListPush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := e.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	all, err := e.as(r.Caller).Pushes(ctx, h.ID)
	return &Pushes{TaskID: h.PublicID, Configs: all}, err
}

// DeletePush deletes a configuration. That it is not there is no error.
func (e *Engine) DeletePush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := e.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	_, err = e.as(r.Caller).DeletePush(ctx, h.ID, r.ConfigID)
	return &Pushes{TaskID: h.PublicID}, err
}

// pushed finds the task of a request, unless there are no webhooks here at all.
func (e *Engine) pushed(ctx context.Context, r *PushRequest) (*task.Task, error) {
	if e.opt.Push == nil {
		return nil, &task.Error{Kind: task.PushUnsupported}
	}
	return e.Find(ctx, r.Caller, r.TaskID)
}

// pushFor is a configuration of a task as the request has it. The default one has the task's id.
func (e *Engine) pushFor(h *task.Task, s *PushSetting, dialect string) *task.PushConfig {
	c := s.PushConfig
	c.Dialect, c.Artifacts = dialect, e.opt.Push.Artifacts
	if c.ID == "" {
		c.ID = h.PublicID
	}
	return &c
}

// Bounds of a configuration, in bytes.
const (
	maxPushID     = 1 << 10 // that of a task becomes that of its default one
	maxPushURL    = 2 << 10
	maxPushSecret = 4 << 10
	maxSchemes    = 16
	maxScheme     = 64
)

// checkPush refuses a configuration that could not be delivered to.
func (e *Engine) checkPush(ctx context.Context, s *PushSetting) error {
	if e.opt.Push == nil {
		return &task.Error{Kind: task.PushUnsupported}
	}
	bad := func(member, format string, args ...any) error {
		if s.Member != "" {
			member = s.Member + "." + member
		}
		return task.InvalidField(member, format, args...)
	}
	for _, b := range []struct {
		member, value string
		most          int
	}{
		{"id", s.ID, maxPushID},
		{"url", s.URL, maxPushURL},
		{"token", s.Token, maxPushSecret},
		{"authentication.credentials", s.Credentials, maxPushSecret},
	} {
		switch {
		case len(b.value) > b.most:
			return bad(b.member, "must not be longer than %d bytes", b.most)
		case control(b.value):
			return bad(b.member, "must not have control characters")
		}
	}
	if len(s.Schemes) > maxSchemes {
		return bad("authentication.schemes", "must not be more than %d", maxSchemes)
	}
	for _, scheme := range s.Schemes {
		if scheme == "" || len(scheme) > maxScheme || control(scheme) || strings.ContainsAny(scheme, " ,") {
			return bad("authentication", "has a scheme that is none: one word such as Bearer is expected")
		}
	}
	// The rest of it is for Check to read.
	if scheme, rest, _ := strings.Cut(s.URL, "://"); rest == "" || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return bad("url", "must be an absolute URL of http or https")
	}
	if e.opt.Push.Check != nil {
		if err := e.opt.Push.Check(ctx, &s.PushConfig); err != nil {
			return bad("url", "%s", err.Error())
		}
	}
	return nil
}

// control reports whether a value could not stand in a header.
func control(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}
