package tracing

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Handler makes a span of each request. Its context is that of the request; handlers give it a better name. It ends when the
// handler returns, or when a stream that has taken it ends (Take).
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		method := methodOf(r.Method)
		ctx, span := t.start(below(r.Context(), ReadContext(r.Header.Values)), method, trace.SpanKindServer, trace.WithAttributes(
			semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme(scheme), semconv.NetworkProtocolVersion(protocol(r))))
		s := &served{span: span, w: w}
		returned := false
		defer func() {
			if !returned { // net/http answers nothing after a panic
				span.Fail("panic")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.report()
			if !s.taken {
				span.End()
			}
		}()
		next.ServeHTTP(s, r.WithContext(context.WithValue(ctx, servedKey{}, s)))
		returned = true
	})
}

func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch:
		return method
	}
	return "_OTHER" // as the conventions demand: clients choose it
}

func protocol(r *http.Request) string {
	if r.ProtoMajor >= 2 {
		return "2"
	}
	return strings.TrimPrefix(r.Proto, "HTTP/")
}

type servedKey struct{}

// served is a request that has a span.
type served struct {
	w      http.ResponseWriter
	span   *Span
	status int
	mu     sync.Mutex
	taken  bool
}

func (s *served) Header() http.Header { return s.w.Header() }

func (s *served) Write(p []byte) (int, error) { return s.w.Write(p) }

func (s *served) WriteHeader(status int) {
	if status >= 200 {
		s.status = status
	}
	s.w.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *served) Unwrap() http.ResponseWriter { return s.w }

func (s *served) report() {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	s.span.Set(semconv.HTTPResponseStatusCode(s.status))
	if s.status >= 500 {
		s.span.Fail(http.StatusText(s.status))
	}
}

// Take takes the span of a request that goes on as a stream. The caller ends it.
func Take(ctx context.Context) *Span {
	s, ok := ctx.Value(servedKey{}).(*served)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = true
	return s.span
}

// Transport makes a span of each request in a context that is traced, and sends its context with it.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t := of(r.Context())
	if t == nil {
		return o.next.RoundTrip(r)
	}
	method := methodOf(r.Method)
	// Neither path nor query: receivers and models have secrets in them.
	ctx, span := t.start(r.Context(), method, trace.SpanKindClient, trace.WithAttributes(append(server(hostPort(r)),
		semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme(r.URL.Scheme))...))
	sent := r.Clone(ctx)
	span.Context().Headers(sent.Header)
	response, err := o.next.RoundTrip(sent)
	if err != nil {
		span.FailWith(err)
		span.End()
		return response, err
	}
	span.Set(semconv.HTTPResponseStatusCode(response.StatusCode))
	if response.StatusCode >= 400 {
		span.Fail(http.StatusText(response.StatusCode))
	}
	response.Body = &body{ReadCloser: response.Body, span: span}
	return response, nil
}

func hostPort(r *http.Request) string {
	if port := r.URL.Port(); port != "" {
		return net.JoinHostPort(r.URL.Hostname(), port)
	}
	return r.URL.Hostname()
}

// CloseIdleConnections is for http.Client.
func (o *transport) CloseIdleConnections() {
	if c, ok := o.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// body ends the span of its request.
type body struct {
	io.ReadCloser
	span *Span
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			b.span.FailWith(err)
		}
		b.span.End() // further ends do nothing
	}
	return n, err
}

func (b *body) Close() error {
	defer b.span.End()
	return b.ReadCloser.Close()
}

// Route names the span of a request by its route.
func (s *Span) Route(method, route string) {
	if route == "" {
		return
	}
	s.Name(methodOf(method) + " " + route)
	s.Set(semconv.HTTPRoute(route))
}
