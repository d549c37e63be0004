package client

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	cards "github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The calls of this file are single requests, for callers that decide themselves what to do after a break.

// Stream sends a message and returns its stream. Close it.
func (c *Client) Stream(ctx context.Context, m *Message) (*Stream, error) {
	return c.open(ctx, client.Stream, c.params(m))
}

// Lists reports whether the version has lists.
func (c *Client) Lists() bool { return c.target.Wire.Has(client.List) }

// List returns a page of the tasks of a context, and the token of the next page, or "". Without a page it is the first one.
func (c *Client) List(ctx context.Context, contextID, page string, size int) (tasks []*task.Task, next string, err error) {
	e, err := c.call(ctx, client.List, &client.Params{Context: contextID, Page: page, PageSize: size})
	if err != nil {
		return nil, "", err
	}
	var more struct {
		NextPageToken string `json:"nextPageToken"`
	}
	if err := json.Unmarshal(e.Raw, &more); err != nil {
		return nil, "", c.unreadable(err)
	}
	return e.Tasks, more.NextPageToken, nil
}

// Binding returns the binding that the client speaks, as cards name it.
func (c *Client) Binding() string { return c.target.Wire.Binding }

// Extends reports whether the card lists an extension.
func (c *Client) Extends(uri string) bool {
	return c.card != nil && slices.ContainsFunc(c.card.Capabilities.Extensions, func(e cards.Extension) bool { return e.URI == uri })
}

// Announced reports whether the card lists the version and binding that the client speaks.
func (c *Client) Announced() bool {
	return c.card != nil && slices.ContainsFunc(c.card.Interfaces, func(i cards.Interface) bool {
		return client.Find(i.Version, i.Binding) == c.target.Wire
	})
}

// Card returns the card that the client has read, or nil.
func (c *Client) Card() *client.Card { return c.card }

// Temporary reports whether the same request may succeed later: the connection broke, or the server asks for that.
func Temporary(err error) bool {
	return broken(err) || errors.Is(err, context.DeadlineExceeded)
}

// Reported returns the error that the server reports, or nil.
func Reported(err error) *Failure {
	if reported := new(client.Error); errors.As(err, &reported) {
		return reported
	}
	return nil
}

// Failure is an error that a server reports.
type Failure = client.Error
