package push

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Delivery is one body for one webhook.
type Delivery struct {
	ID          string // the same for every attempt
	TaskID      string // as clients know it
	Task        task.ID
	Agent       string
	Owner       task.Owner // of the task
	Config      *task.PushConfig
	ContentType string
	Body        []byte
	Reference   bool   // the body is the task without its content, which is too large
	Traceparent string // of the request that created the task, or ""
}

// Class is the outcome of an attempt in one word, for metrics and operators.
type Class string

// The classes.
const (
	Delivered Class = "delivered" // 2xx
	Gone      Class = "gone"      // 410: the receiver wants no more deliveries
	Redirect  Class = "redirect"  // 3xx; we do not follow redirects
	Throttled Class = "throttled" // 408, 425, 429
	Client    Class = "client"    // another 4xx
	Server    Class = "server"    // 5xx
	Refused   Class = "refused"   // by package guard
	DNS       Class = "dns"       // the name could not be resolved
	TLS       Class = "tls"       // no secure connection, such as with a bad certificate
	Timeout   Class = "timeout"
	Network   Class = "network"  // no connection, or it broke
	Internal  Class = "internal" // an error of this server
	// Nothing was sent, because the A2A version has no form for the events.
	Silent Class = "silent"
	// Interrupted attempts were cut off by the server's stop. They are not recorded.
	Interrupted Class = "interrupted"
)

// Classes are the classes that are recorded.
var Classes = []Class{Delivered, Gone, Redirect, Throttled, Client, Server, Refused, DNS, TLS, Timeout, Network, Internal, Silent}

// Answer is the outcome of an attempt.
type Answer struct {
	Class      Class
	Status     int    // 0: no answer
	Error      string // for operators; empty after a delivery
	RetryAfter time.Duration
	Took       time.Duration
}

// SenderOptions configures a Sender. A number that is zero means its default.
type SenderOptions struct {
	Guard          *web.Guard
	Signer         Signer
	Issuer         string        // of the JWTs: the base URL of this server
	Secrets        []Secret      // for Standard Webhooks; without secrets there is no such signature
	UserAgent      string        // default Holdfast
	Timeout        time.Duration // of a whole attempt; default 15 s
	ConnectTimeout time.Duration // of connecting, and again of the TLS handshake; default 5 s
	PerHost        int           // idle connections kept per host; default 8
	RootCAs        *x509.CertPool
	Tracer         *tracing.Tracer // nil: no traces
	// Headers returns the headers in which a version sends the token of a configuration, and whether it also sends API
	// keys in Authorization. Nil: no headers, and false.
	Headers func(version string) (token []string, authorizesKeys bool)
}

// Sender makes single attempts. Its methods may be called from many goroutines.
type Sender struct {
	opt    SenderOptions
	client *http.Client
}

// NewSender makes a sender.
func NewSender(o SenderOptions) *Sender {
	o.UserAgent = cmp.Or(o.UserAgent, "Holdfast")
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	o.PerHost = cmp.Or(o.PerHost, 8)
	if o.Headers == nil {
		o.Headers = func(string) ([]string, bool) { return nil, false }
	}
	protocols := new(http.Protocols)
	// With HTTP/2, one hanging connection would block all deliveries to its host.
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		// No proxy: the environment of a shell must not decide where webhooks go. A proxy would also connect to
		// addresses that the guard has not checked.
		Proxy: nil,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
			defer cancel()
			return o.Guard.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    o.ConnectTimeout,
		Protocols:              protocols,
		DisableCompression:     true, // only the status of an answer matters
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    o.PerHost,
		IdleConnTimeout:        30 * time.Second,
	}
	return &Sender{opt: o, client: &http.Client{CheckRedirect: web.NoRedirects, Transport: tracing.Transport(transport)}}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Send makes one attempt. It blocks for at most the timeout. If ctx ends earlier, the answer is Interrupted.
func (s *Sender) Send(ctx context.Context, d *Delivery) Answer {
	start := time.Now()
	traced, span := s.opt.Tracer.Deliver(ctx, &tracing.Webhook{
		Created: tracing.Context{Parent: d.Traceparent}, Agent: d.Agent, TaskID: d.TaskID, ID: d.ID,
	})
	defer span.End()
	attempt, cancel := context.WithTimeout(traced, s.opt.Timeout)
	defer cancel()
	a := s.send(attempt, cancel, d, start)
	a.Took = time.Since(start)
	if a.Status == 0 && ctx.Err() != nil {
		a.Class = Interrupted
	}
	a.Error = redact(a.Error, d.Config)
	if span != nil {
		span.Set(tracing.Outcome.String(string(a.Class)))
		if a.Class != Delivered {
			span.Fail(string(a.Class))
		}
	}
	return a
}

func (s *Sender) send(ctx context.Context, cancel context.CancelFunc, d *Delivery, now time.Time) Answer {
	// The rules may have changed since the client set the webhook.
	target, err := s.opt.Guard.Parse(d.Config.URL)
	if err != nil {
		return failed(err)
	}
	header, err := s.headers(d, now)
	if err != nil {
		return Answer{Class: Internal, Error: err.Error()}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.URL.String(), bytes.NewReader(d.Body))
	if err != nil {
		return Answer{Class: Internal, Error: err.Error()}
	}
	request.Header = header
	response, err := s.client.Do(request)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	return answered(response, cancel, now)
}

// answered judges an answer by its status. The rest of the answer has no meaning.
func answered(r *http.Response, cancel context.CancelFunc, now time.Time) Answer {
	a := Answer{Class: classOf(r.StatusCode), Status: r.StatusCode}
	if a.Class == Delivered {
		web.Drain(r.Body, cancel)
		return a
	}
	a.Error = fmt.Sprintf("the receiver answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	if a.Class == Redirect {
		a.Error += "; redirects are not followed"
	} else if text := web.ReadExcerpt(r, cancel); text != "" {
		a.Error += ": " + text
	}
	a.RetryAfter = web.RetryAfter(r.Header.Get("Retry-After"), now, longestRetryAfter)
	return a
}

func classOf(status int) Class {
	switch {
	case status >= 200 && status < 300:
		return Delivered
	case status == http.StatusGone:
		return Gone
	case status >= 300 && status < 400:
		return Redirect
	case status >= 500:
		return Server
	case web.WorthRetrying(status):
		return Throttled
	}
	return Client
}

// failed classifies an attempt without an answer.
func failed(err error) Answer {
	// The outer error repeats the URL, which may contain a secret.
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	a := Answer{Class: Network, Error: err.Error()}
	var (
		refusal     *web.GuardRefusal
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
		noTLS       tls.RecordHeaderError
		slow        net.Error
	)
	switch {
	case errors.As(err, &refusal):
		a.Class = Refused
	case errors.As(err, &dns) && !dns.IsTimeout:
		a.Class = DNS
	case errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, &noTLS), errors.Is(err, http.ErrSchemeMismatch):
		a.Class = TLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		a.Class = Timeout
	}
	return a
}

// redact removes the client's secrets from a text for operators, because a receiver may echo them.
func redact(text string, c *task.PushConfig) string {
	for _, secret := range []string{c.Token, c.Credentials} {
		if len(secret) < leastSecret {
			continue
		}
		text = strings.ReplaceAll(text, secret, "***")
		// An excerpt may end in the middle of a secret.
		for n := min(len(secret), len(text)); n >= leastSecret; n-- {
			if start, ok := strings.CutSuffix(text, secret[:n]); ok {
				text = start + "***"
				break
			}
		}
	}
	return text
}

// leastSecret is the length of the shortest secret to redact. Shorter ones would match in every other text.
const leastSecret = 4
