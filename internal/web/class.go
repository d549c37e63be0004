package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// Class is what came of a request to an agent, or to what is behind one. Executors decide by it whether the agent is away.
type Class string

// The classes.
const (
	OK          Class = "ok"
	Redirected  Class = "redirect"    // not followed
	Refused     Class = "refused"     // another 4xx
	Overloaded  Class = "overloaded"  // it says that it is too busy, or away for a time
	Gateway     Class = "gateway"     // something in between got no answer; perhaps this request made the agent crash
	Failed      Class = "error"       // another 5xx
	TimedOut    Class = "timeout"     // it may have got the request, and did not answer in time
	Unreachable Class = "unreachable" // it cannot have got the request
	Broken      Class = "broken"      // it may have got the request, and the connection broke before an answer
	Canceled    Class = "canceled"    // we gave up the request
)

// Classes has them all.
var Classes = []Class{OK, Redirected, Refused, Overloaded, Gateway, Failed, TimedOut, Unreachable, Broken, Canceled}

// StatusOverloaded is the status of Anthropic, and of gateways before it, for too many requests of all clients.
const StatusOverloaded = 529

// StatusClass returns the class of an answer by its status.
func StatusClass(code int) Class {
	switch code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, StatusOverloaded:
		return Overloaded
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return Gateway
	}
	switch {
	case code >= 500:
		return Failed
	case code >= 400:
		return Refused
	case code >= 300:
		return Redirected
	}
	return OK
}

// FailureClass returns the class of a request without an answer. sent says that the receiver may have got some of it. ctx is
// that of the request.
func FailureClass(ctx context.Context, err error, sent bool) Class {
	var of net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Canceled
	case !sent:
		return Unreachable
	case ctx.Err() != nil, errors.As(err, &of) && of.Timeout():
		return TimedOut
	}
	return Broken
}

// Observer receives the class of a request, and the time until the head of its answer or its failure. It must not block.
type Observer func(class Class, took time.Duration)

// observed tells an observer of each request.
type observed struct {
	next http.RoundTripper
	tell Observer
}

// RoundTrip implements http.RoundTripper.
func (o *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	begun := time.Now()
	response, err := o.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		o.tell(FailureClass(ctx, err, sent.Load()), time.Since(begun))
		return response, err
	}
	o.tell(StatusClass(response.StatusCode), time.Since(begun))
	return response, nil
}

// CloseIdleConnections is for http.Client.
func (o *observed) CloseIdleConnections() {
	if c, ok := o.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
