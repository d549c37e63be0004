// Package rpc is the public HTTP server: the routes of every agent, the agent cards, and the
// bindings that answer.
package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Agent describes an agent to the server.
type Agent struct {
	Name    string
	Default bool // also served at the root
	Card    card.Card
	// Extended is the card for callers that the agent admits. Nil: Card, with the skills that they may see.
	Extended *card.Card
	Gate     auth.Gate
}

// served is an agent with its current cards.
type served struct {
	*Agent
	cards atomic.Pointer[cards]
}

// cards are what an agent shows.
type cards struct{ public, extended card.Card }

// card returns the public card.
func (a *served) card() *card.Card { return &a.cards.Load().public }

// extended returns the card for callers that the agent admits, or nil if the public card declares none.
func (a *served) extended() *card.Card {
	if c := a.cards.Load(); c.public.Capabilities.ExtendedCard {
		return &c.extended
	}
	return nil
}

// SetCards replaces the cards of an agent. Requests under way may still show the old ones.
func (s *Server) SetCards(agent string, public card.Card, extended *card.Card) {
	a := s.agents[agent]
	if a == nil {
		return
	}
	a.show(public, extended, s.revisions.Add(1))
	s.cards.Forget(agent)
}

func (a *served) show(public card.Card, extended *card.Card, revision int64) {
	c := &cards{public: public, extended: public}
	c.public.Revision, c.extended.Revision = int(2*revision), int(2*revision)
	if extended != nil {
		c.extended = *extended
		c.extended.Revision = int(2*revision + 1)
	}
	a.cards.Store(c)
}

// Mount is a handler of all paths below one.
type Mount struct {
	Path    string // as /run/v1: also itself, without more
	Name    string // of spans
	Handler http.Handler
}

// Options configures a server.
type Options struct {
	Agents []Agent
	// PublicURL is the base of the URLs in cards. Without it the URLs follow the request: its Host
	// and its scheme. Where the peer is one of Proxies, or without Proxies where its address is private or
	// loopback, the scheme comes from X-Forwarded-Proto if the proxy sets it. The server never reads
	// X-Forwarded-Host.
	PublicURL string
	// Proxies tell the addresses of clients. Nil: the address of a client is that of its connection.
	Proxies *web.TrustedProxies
	JSONRPC *jsonrpc.Binding
	REST    *rest.Binding
	GRPC    *grpcapi.Binding // nil: no gRPC
	// Mounts are served beside the agents, before the rules for clients and pages in browsers: their requests have a credential that
	// no browser sends by itself (a token, or the URL itself), and their senders may know this server by another host name.
	Mounts []Mount
	// Keys signs the cards, unless PlainCards is set, and its public keys are published. Nil:
	// neither. Without PublicURL cards are not signed, since their URLs follow the request. The
	// operation for the extended card then returns an error.
	Keys       KeySet
	PlainCards bool
	// CORS allows pages of other origins. Without it such pages can neither read nor change
	// anything.
	CORS CORS
	// OriginRefused counts a request of a page that CORS does not allow. Nil: not counted.
	OriginRefused func()
	// LocalOnly restricts an unauthenticated server to this machine: it refuses every other host
	// except that of PublicURL.
	LocalOnly bool
	// Auth authenticates callers as the gates of agents require. Nil: all gates are open.
	Auth *auth.Authenticator
	// TLS configures the port. Nil: no TLS.
	TLS *tls.Config
	// Unversioned is the rendering for card readers that do not state their version.
	Unversioned   card.Rendering
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	// Headers is for those of requests without an accepted credential. Nil: no bound.
	Headers *limit.Budget
	// Refused counts a request that is refused before its credential is read. Nil: not counted.
	Refused func()
	Tracer  *tracing.Tracer // nil: no traces
	Log     *slog.Logger
}

// Server is the public HTTP server.
type Server struct {
	opt    Options
	cards  *card.Publisher
	agents map[string]*served
	names  []string // of agents, sorted
	// revisions counts the changes of cards.
	revisions atomic.Int64
	common    string // the agent at the root, or ""
	// originLogged is when a refused origin was logged last.
	originLogged atomic.Int64
	http         *http.Server
	arrivals     limit.Headers
	operators    operators

	draining atomic.Bool
}

// New makes a server; Serve starts it.
func New(o Options) *Server {
	o.PublicURL = strings.TrimSuffix(o.PublicURL, "/")
	s := &Server{opt: o, agents: map[string]*served{}, operators: newOperators(&o)}
	s.arrivals = limit.Headers{Budget: o.Headers, Streams: limit.NewPlaces[string](maxArrivals, maxArrivalsOfAddress)}
	e := echo.New()
	e.HTTPErrorHandler = s.httpError
	e.Pre(s.limitBody, s.mounts, s.foreign)
	if len(o.CORS.Origins) > 0 {
		e.Pre(cors(o.CORS))
	}
	if !o.CORS.Any() {
		e.Pre(sameOrigin(o.CORS, o.PublicURL))
		if o.LocalOnly {
			e.Pre(ownHost(o.PublicURL))
		}
	}
	e.Pre(s.rest, plainPath)
	if o.Tracer != nil {
		e.Use(nameSpan)
	}
	if o.Keys != nil {
		get(e, keySetPath, s.keySet)
	}
	get(e, catalogPath, s.serveCatalog)
	for i := range o.Agents {
		a := &served{Agent: &o.Agents[i]}
		a.show(a.Card, a.Extended, 0)
		s.agents[a.Name] = a
		s.names = append(s.names, a.Name)
		s.routes(e, agentPath(a.Name), a)
		if a.Default {
			s.common = a.Name
			s.routes(e, "", a)
		}
	}
	slices.Sort(s.names)
	bindings := []card.Binding{jsonrpc.Announced(), rest.Announced()}
	if o.GRPC != nil {
		bindings = append(bindings, o.GRPC.Announced(s.common)...)
	}
	s.cards = s.publisher(bindings...)
	if o.Proxies != nil {
		e.SchemeExtractor = echo.LegacySchemeExtractor() // Proxies.Handler removes the headers of others
	}
	s.http = &http.Server{
		Handler: web.ReadOn(o.Proxies.Handler(o.Tracer.Handler(s.secured(s.bounded(e))))), ConnContext: connected, ConnState: follow, ReadHeaderTimeout: o.HeaderTimeout, IdleTimeout: o.IdleTimeout, MaxHeaderBytes: maxHeaders,
		Protocols: protocols(), HTTP2: http2Limits(o.HeaderTimeout),
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), TLSConfig: o.TLS,
	}
	return s
}

// Limits of a connection that operators cannot set.
const (
	maxHeaders  = 64 << 10 // of a request, in bytes
	maxRequests = 250      // concurrent, on one HTTP/2 connection
	// net/http takes these bytes of bodies over HTTP/2 before a handler reads them.
	bodyWindow       = 64 << 10
	connectionWindow = 256 << 10
)

// protocols returns HTTP/1.1 and, with TLS, HTTP/2. Without TLS there is no HTTP/2: a stream over
// HTTP/1.1 costs less, and gRPC has its own port.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	return p
}

// http2Limits close a connection whose peer is dead or reads nothing, so that its streams do not
// hold it. They bound the bytes of bodies that no handler has read.
func http2Limits(patience time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxReceiveBufferPerStream: bodyWindow, MaxReceiveBufferPerConnection: connectionWindow,
		MaxConcurrentStreams: maxRequests, SendPingTimeout: 30 * time.Second, PingTimeout: patience, WriteByteTimeout: patience,
	}
}

// Gate returns the gate of an agent that is served.
func (s *Server) Gate(agent string) *auth.Gate { return &s.agents[agent].Gate }

func agentPath(name string) string { return catalogPath + "/" + name }

// routes serves one agent below a path.
func (s *Server) routes(e *echo.Echo, base string, a *served) {
	serve := func(pin string) echo.HandlerFunc {
		return func(c echo.Context) error {
			// The writer below echo's reports when a flush fails.
			s.opt.JSONRPC.Serve(c.Response().Writer, c.Request(), jsonrpc.Endpoint{
				Endpoint: s.arrival(c.Request(), a.Name, base == ""), Pin: pin,
			})
			return nil
		}
	}
	root := base
	if root == "" {
		root = "/"
	}
	e.POST(root, serve(""))
	for _, c := range registry.All() {
		e.POST(base+"/v"+c.Traits().Version, serve(c.Traits().Version))
	}
	s.cardRoutes(e, base, a)
}

// mounts passes requests below a mount on.
func (s *Server) mounts(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		for i := range s.opt.Mounts {
			m := &s.opt.Mounts[i]
			if rest, below := strings.CutPrefix(r.URL.Path, m.Path); below && (rest == "" || rest[0] == '/') {
				tracing.Current(r.Context()).Name(m.Name)
				m.Handler.ServeHTTP(c.Response().Writer, r)
				return nil
			}
		}
		return next(c)
	}
}

// rest serves the paths of HTTP+JSON. They are not echo routes, because echo does not see escaped
// slashes. An id may contain one and must not look like another path.
func (s *Server) rest(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		agent, common, path := s.locate(c.Request().URL.EscapedPath())
		target := rest.Match(path)
		if agent == "" || target == nil {
			return next(c)
		}
		s.opt.REST.Serve(c.Response().Writer, c.Request(), s.arrival(c.Request(), agent, common), target)
		return nil
	}
}

// nameSpan names the span of a request by its route. An operation gives it a better name.
func nameSpan(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if span := tracing.Current(c.Request().Context()); span != nil {
			span.Route(c.Request().Method, c.Path())
		}
		return next(c)
	}
}

// locate finds the agent that serves a path, and the rest of the path below the agent's base.
func (s *Server) locate(path string) (agent string, common bool, rest string) {
	if below, ok := strings.CutPrefix(path, "/agents/"); ok {
		escaped, rest, _ := strings.Cut(below, "/")
		if name, err := url.PathUnescape(escaped); err == nil && s.agents[name] != nil {
			return name, false, rest
		}
	}
	return s.common, true, path
}

// limitBody bounds the time for a body that no handler reads, such as that of a refused request:
// net/http reads it before it answers. Handlers that read the body set their own limit.
func (s *Server) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().ContentLength != 0 && s.opt.HeaderTimeout > 0 {
			wait := min(s.opt.HeaderTimeout, arrivedWithin/2) // then there is time for the answer
			_ = http.NewResponseController(c.Response().Writer).SetReadDeadline(time.Now().Add(wait))
		}
		return next(c)
	}
}

// plainPath gives every spelling of a path the same route. Many clients lose the body of a
// redirected POST, so the server accepts a trailing slash instead of redirecting.
func plainPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		u := c.Request().URL
		u.RawPath = "" // escaped slashes matter in no route; the paths of HTTP+JSON are not routes
		if len(u.Path) > 1 {
			u.Path = strings.TrimSuffix(u.Path, "/")
		}
		return next(c)
	}
}

// httpError answers requests that neither a route nor a binding answers.
func (s *Server) httpError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status := http.StatusInternalServerError
	var he *echo.HTTPError
	if errors.As(err, &he) {
		status = he.Code
	} else {
		s.opt.Log.Error("request failed", "path", c.Path(), "error", err)
	}
	body := map[string]string{"error": http.StatusText(status)}
	switch path := c.Request().URL.Path; {
	case he != nil && (status == http.StatusBadRequest || status == http.StatusForbidden):
		body["detail"] = fmt.Sprint(he.Message)
	case status == http.StatusNotFound:
		body["detail"] = "the agents are at /agents/{name} (the default one also at /) and listed at /agents; each has its card below, at .well-known/agent-card.json"
	case status == http.StatusMethodNotAllowed && (path == catalogPath || strings.Contains(path, "/.well-known/")):
		body["detail"] = "cards and keys accept only GET"
	case status == http.StatusMethodNotAllowed:
		body["detail"] = "this is an A2A agent: it accepts JSON-RPC by POST; GET its card at " +
			strings.TrimSuffix(path, "/") + cardPath
	}
	_ = c.JSON(status, body)
}

// Serve accepts connections on a listener and blocks until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	serve := s.http.Serve
	if s.opt.TLS != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeGRPC accepts gRPC connections on a listener and blocks until Shutdown.
func (s *Server) ServeGRPC(l net.Listener) error {
	return s.opt.GRPC.Serve(l, func(ctx context.Context, values func(string) []string, chain []*x509.Certificate, address string) dispatch.Endpoint {
		return s.endpoint(ctx, &auth.Request{Header: values, Chain: chain, Address: address}, s.common, true)
	})
}

// ServeHTTP answers one request; tests need no listener.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.http.Handler.ServeHTTP(w, r) }

// Drain tells clients to leave, and serves on: each answer closes its connection, and the health
// service of gRPC says that this server does not serve. Shutdown closes the idle connections, also
// one on which a request is under way to us.
func (s *Server) Drain() {
	s.draining.Store(true)
	if s.opt.GRPC != nil {
		s.opt.GRPC.Drain()
	}
}

// Shutdown refuses new requests and waits for those in progress. Streams end when the hub is
// closed.
func (s *Server) Shutdown(ctx context.Context) error {
	var all errgroup.Group
	if s.opt.GRPC != nil {
		all.Go(func() error { return s.opt.GRPC.Shutdown(ctx) })
	}
	all.Go(func() error {
		if err := s.http.Shutdown(ctx); err != nil {
			return errors.Join(err, s.http.Close())
		}
		return errors.Join(s.opt.JSONRPC.Wait(ctx), s.opt.REST.Wait(ctx))
	})
	return all.Wait()
}
