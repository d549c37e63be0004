// Package rpc is the public HTTP server: the routes of every agent, the agent
// cards, and the bindings behind them.
package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
)

// Agent is what the server shows of an agent.
type Agent struct {
	Name    string
	Default bool // also served at the root
	Card    card.Card
}

// Options configures a server.
type Options struct {
	Agents        []Agent
	PublicURL     string // base of the URLs in cards; empty takes it from each request
	JSONRPC       *jsonrpc.Binding
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	Log           *slog.Logger
}

// Server is the public HTTP server.
type Server struct {
	opt  Options
	http *http.Server
}

// New makes a server; Serve starts it.
func New(o Options) *Server {
	s := &Server{opt: o}
	e := echo.New()
	e.HTTPErrorHandler = s.httpError
	// A POST that is redirected loses its body in many clients, so both forms of a path are served.
	e.Pre(trimSlash)
	for _, a := range o.Agents {
		s.routes(e, "/agents/"+a.Name, a)
		if a.Default {
			s.routes(e, "", a)
		}
	}
	s.http = &http.Server{
		Handler: e, ReadHeaderTimeout: o.HeaderTimeout, IdleTimeout: o.IdleTimeout, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// routes serves one agent below a path.
func (s *Server) routes(e *echo.Echo, base string, a Agent) {
	serve := func(pin string) echo.HandlerFunc {
		return func(c echo.Context) error {
			s.opt.JSONRPC.Serve(c.Response(), c.Request(), jsonrpc.Endpoint{
				Agent: a.Name, Pin: pin, Principal: engine.Principal{},
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
		e.POST(base+"/v"+c.Version(), serve(c.Version()))
	}
	for _, path := range []string{"/.well-known/agent.json", "/.well-known/agent-card.json"} {
		e.GET(base+path, s.card(base, a))
	}
}

// card serves the legacy rendering, which clients of 0.1, 0.2 and 0.3 read.
func (s *Server) card(base string, a Agent) echo.HandlerFunc {
	return func(c echo.Context) error {
		url := s.opt.PublicURL
		if url == "" {
			url = c.Scheme() + "://" + c.Request().Host
		}
		doc, err := card.Legacy(&a.Card, strings.TrimSuffix(url, "/")+base+"/")
		if err != nil {
			return err
		}
		h := c.Response().Header()
		h.Set("Cache-Control", "max-age=60")
		h.Set("Vary", "A2A-Version")
		h.Set("ETag", card.ETag(doc))
		if c.Request().Header.Get("If-None-Match") == h.Get("ETag") {
			return c.NoContent(http.StatusNotModified)
		}
		return c.Blob(http.StatusOK, "application/json", doc)
	}
}

func trimSlash(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		u := c.Request().URL
		if len(u.Path) > 1 && strings.HasSuffix(u.Path, "/") {
			u.Path = strings.TrimSuffix(u.Path, "/")
			u.RawPath = strings.TrimSuffix(u.RawPath, "/")
		}
		return next(c)
	}
}

// httpError answers what no route and no binding answers.
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
	switch status {
	case http.StatusNotFound:
		body["detail"] = "the agents of this server answer at / and /agents/{name}; their cards are below at .well-known/agent-card.json"
	case http.StatusMethodNotAllowed:
		body["detail"] = "JSON-RPC is POST"
	}
	_ = c.JSON(status, body)
}

// Serve answers on a listener until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP answers one request; tests need no listener.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.http.Handler.ServeHTTP(w, r) }

// Shutdown refuses new requests and waits for those under way. Streams end when
// the hub is closed.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}
