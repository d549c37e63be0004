package engine

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Push configures webhooks.
type Push struct {
	// Check refuses a URL that the server must not deliver to, and returns its host for
	// task.PushConfig. The engine reports the error text as an error of member url.
	Check func(ctx context.Context, url string) (host string, err error)
	// MaxPerTask is how many configurations a task may have; default 20.
	MaxPerTask int
	Artifacts  bool // deliver artifact events, too
}

// Pushes holds configurations of a task as responses show them, without secrets.
type Pushes struct {
	TaskID  string // public
	Configs []task.PushConfig
	// NextToken asks for the next page of a list, unless it is "".
	NextToken string
}

// SetPush adds a configuration to a task, or replaces the one with the same id. If the request has
// no configuration, it deletes the task's default one.
func (v *View) SetPush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := v.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Set == nil {
		_, err := v.store.DeletePush(ctx, h.ID, h.PublicID)
		return &Pushes{TaskID: h.PublicID}, err
	}
	if err := v.checkPush(ctx, r.Set); err != nil {
		return nil, err
	}
	c := v.pushFor(h, r.Set, r.Dialect)
	if r.Set.ID == "" && r.Set.Further {
		c.ID = uuid.NewString()
	}
	if err := v.store.SetPush(ctx, h.ID, c, v.opt.Push.MaxPerTask); err != nil {
		return nil, err
	}
	c.Token, c.Credentials = "", ""
	return &Pushes{TaskID: h.PublicID, Configs: []task.PushConfig{*c}}, nil
}

// GetPush returns the configuration that the request names. If the request names none, it returns
// the default one, or else the oldest. Errors: task.NotFound if the task has no such configuration;
// with MayLack an empty result instead.
func (v *View) GetPush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := v.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	all, err := v.store.Pushes(ctx, h.ID)
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

// ListPush lists the configurations of a task, the oldest first. A token is the id of the last configuration of a page. All
// configurations of a task are read, because they are few.
func (v *View) ListPush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := v.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	all, err := v.store.Pushes(ctx, h.ID)
	if err != nil {
		return nil, err
	}
	if r.PageToken != "" {
		last, err := base64.RawURLEncoding.DecodeString(r.PageToken)
		i := slices.IndexFunc(all, func(c task.PushConfig) bool { return c.ID == string(last) })
		if err != nil || i < 0 {
			return nil, task.InvalidField("pageToken", "names no configuration of the task; begin again without it")
		}
		all = all[i+1:]
	}
	p := &Pushes{TaskID: h.PublicID, Configs: all}
	if r.PageSize > 0 && len(all) > r.PageSize {
		p.Configs = all[:r.PageSize]
		p.NextToken = base64.RawURLEncoding.EncodeToString([]byte(all[r.PageSize-1].ID))
	}
	return p, nil
}

// DeletePush deletes a configuration. A missing configuration is not an error.
func (v *View) DeletePush(ctx context.Context, r *PushRequest) (*Pushes, error) {
	h, err := v.pushed(ctx, r)
	if err != nil {
		return nil, err
	}
	_, err = v.store.DeletePush(ctx, h.ID, r.ConfigID)
	return &Pushes{TaskID: h.PublicID}, err
}

// pushed finds the task of a request. It returns task.PushUnsupported if webhooks are disabled.
func (v *View) pushed(ctx context.Context, r *PushRequest) (*task.Task, error) {
	if v.opt.Push == nil {
		return nil, &task.Error{Kind: task.PushUnsupported}
	}
	return v.Find(ctx, r.TaskID)
}

// pushFor returns the configuration of a task that a request describes. The default configuration
// has the task's public id as its id.
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
	maxPushID     = 1 << 10 // a default configuration has its task's id
	maxPushSecret = 4 << 10
	maxSchemes    = 16
	maxScheme     = 64
)

// checkPush refuses a configuration that the server cannot deliver to.
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
			return bad("authentication", "schemes must each be one word, such as Bearer")
		}
	}
	var err error
	if s.Host, err = e.opt.Push.Check(ctx, s.URL); err != nil {
		return bad("url", "%s", err.Error())
	}
	return nil
}

// control reports whether a value has control characters, which a header cannot carry.
func control(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}
