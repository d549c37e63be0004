package push

import "github.com/holdfast-a2a/holdfast/internal/task"

// Encoder renders deliveries in the A2A version that set the webhook.
type Encoder interface {
	// Whole reports whether the bodies of a version show the whole task.
	Whole(dialect string) bool
	// Body renders an event of a task. Of the task it reads only the identity, unless the version wants the whole task;
	// then t is the task as of that event. With a nil event it renders the task. A nil body means that the version has
	// no form for the event.
	Body(c *task.PushConfig, t *task.Task, e *task.Event) (body []byte, contentType string, err error)
}

// render makes a delivery that shows a task, or nil if the version has no form for its event.
func (d *Dispatcher) render(c *claim, p *pending, t *task.Task) (*Delivery, error) {
	h := c.header
	delivery := &Delivery{
		ID: p.id(c), TaskID: c.PublicID, Task: h.ID, Agent: h.Agent, Owner: task.Owner{Tenant: h.Tenant, Subject: h.Owner},
		Config: &c.Config, Traceparent: h.Traceparent,
	}
	var err error
	if !p.large {
		delivery.Body, delivery.ContentType, err = d.opt.Encoder.Body(&c.Config, t, p.event)
	}
	if err == nil && (p.large || int64(len(delivery.Body)) > d.opt.MaxBody) {
		delivery.Reference = true
		delivery.Body, delivery.ContentType, err = d.reference(c, p, t)
	}
	if err != nil || delivery.Body == nil {
		return nil, err
	}
	return delivery, nil
}

// reference renders the task without its content, for a delivery of the task of that is larger than MaxBody. It has the message
// of its status if that fits. As in render, a nil body means that the version has no form for the event.
func (d *Dispatcher) reference(c *claim, p *pending, of *task.Task) (body []byte, contentType string, err error) {
	t := *c.header
	direct := t.Direct
	t.Status, t.Metadata, t.Direct = of.Status, nil, false
	if e := p.event; e != nil {
		direct = e.Direct
		t.Status = task.Status{State: e.State, Message: e.Message, At: e.At, Seq: e.Seq}
		if e.Kind == task.EventArtifact {
			t.Status.State = task.StateWorking // as agents are that write artifacts
		}
	}
	if direct {
		bare := task.Task{Direct: true, Status: task.Status{Message: &task.Message{}}}
		if body, _, err = d.opt.Encoder.Body(&c.Config, &bare, nil); err != nil || body == nil {
			return nil, "", err
		}
	}
	body, contentType, err = d.opt.Encoder.Body(&c.Config, &t, nil)
	if t.Status.Message != nil && int64(len(body)) > d.opt.MaxBody {
		t.Status.Message = nil
		body, contentType, err = d.opt.Encoder.Body(&c.Config, &t, nil)
	}
	return body, contentType, err
}
