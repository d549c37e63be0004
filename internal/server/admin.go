package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/admin/console"
	"github.com/holdfast-a2a/holdfast/internal/admin/login"
	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// adminServer serves the admin address from the start, so that probes get an answer while the schema is migrated.
type adminServer struct {
	*http.Server
	pages   atomic.Pointer[http.Handler]
	waiting atomic.Pointer[string] // why the schema is not usable yet
	served  chan error             // gets the result of Serve
}

// startAdmin serves the probes until the pages are replaced by those of adminPages. A part of the server waits for what served gets.
func startAdmin(e *env, access *access, l net.Listener) *adminServer {
	s := &adminServer{served: make(chan error, 1)}
	starting := "starting"
	s.waiting.Store(&starting)
	schema := telemetry.Check{Name: "schema", Probe: func(context.Context) (string, error) { return "", errors.New(*s.waiting.Load()) }}
	admit := func(*http.Request, telemetry.Page) error { return task.Errorf(task.Unavailable, "the server starts") }
	if e.cfg.AdminAccess() != config.AdminAsks { // else credentials are checked when the database is open
		admit = access.admits()
	}
	var later []telemetry.Endpoint
	for _, path := range []string{admin.Path + "/", console.Path, console.DocumentsPath, "GET /{$}"} {
		later = append(later, telemetry.Endpoint{Pattern: path, Handler: http.HandlerFunc(starts)})
	}
	pages := telemetry.AdminHandler(e.registry, admit, later, schema)
	s.pages.Store(&pages)
	s.Server = &http.Server{
		Handler:           web.ReadOn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.pages.Load()).ServeHTTP(w, r) })),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second, // a profile may take longer to write
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: adminRequests, MaxReceiveBufferPerStream: adminWindow, MaxReceiveBufferPerConnection: adminWindow,
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: 30 * time.Second,
		},
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
	if e.cfg.Admin.TLS {
		s.TLSConfig = access.tlsConfig()
	}
	go func() { s.served <- serveAdmin(s.Server, l) }()
	return s
}

// starts answers for pages that come later. A console that is open during a restart takes 404 for an answer, but repeats after 503.
func starts(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "The server starts. Try again in a second.", http.StatusServiceUnavailable)
}

// adminPages makes what the admin address serves when the server is up.
func adminPages(e *env, access *access, api *admin.API, logins *login.Handler, page, documents http.Handler, checks []telemetry.Check) http.Handler {
	endpoints := []telemetry.Endpoint{
		{Pattern: admin.Path + "/", Handler: api},
		{Pattern: "GET " + console.Path, Handler: page},
		{Pattern: "GET " + console.DocumentsPath, Handler: documents},
		{Pattern: "GET /{$}", Handler: http.RedirectHandler(console.Path, http.StatusFound)},
	}
	if logins != nil {
		for _, path := range []string{login.Path, login.CallbackPath, login.KeyPath, login.UserPath, login.LogoutPath} {
			endpoints = append(endpoints, telemetry.Endpoint{Pattern: path, Handler: logins})
		}
	}
	return telemetry.AdminHandler(e.registry, access.admits(), endpoints, checks...)
}

func serveAdmin(s *http.Server, l net.Listener) error {
	serve := s.Serve
	if s.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server: %w", err)
	}
	return nil
}

// admits returns the check for operators of the admin address.
func (c *access) admits() telemetry.Admit {
	switch c.cfg.AdminAccess() {
	case config.AdminAsks:
		a := &c.cfg.Admin
		return func(r *http.Request, page telemetry.Page) error {
			shown := rpc.Shown(r)
			// These pages are for incidents, when the database may be away.
			shown.Lately = page != telemetry.Others
			id := c.admin.Authenticate(r.Context(), shown)
			gate := &auth.Gate{Schemes: a.Schemes, Scope: a.Scope}
			if page == telemetry.Health {
				gate.Scope = config.AdminMetrics
				if _, scope := c.rightOf(&id.Caller); scope != "" {
					gate.Scope = scope
				}
			}
			caller, err := c.admin.Admit(id, gate)
			if err == nil && c.bound(&caller) {
				// All pages but the admin API show all tenants.
				err = task.Errorf(task.Forbidden, "operators of one tenant may not see what belongs to the whole server (admin.all_tenants_scope)")
			}
			return err
		}
	case config.AdminOpen:
		return func(*http.Request, telemetry.Page) error { return nil }
	case config.AdminLocal:
		// A web page in a browser on this machine may point a host name of its own here (DNS rebinding).
		return func(r *http.Request, _ telemetry.Page) error {
			if rpc.OfThisMachine(r.Host) {
				return nil
			}
			return task.Errorf(task.Forbidden, "the admin address needs no credential and serves only its own machine; use an IP address or localhost as the host")
		}
	case config.AdminProbes:
	}
	return func(*http.Request, telemetry.Page) error {
		return task.Errorf(task.Forbidden, "other machines can reach the admin address and it needs no credential, so it serves only the probes; "+
			"set auth.schemes, put admin_listen on 127.0.0.1, or set admin.open: true to serve everybody")
	}
}

// operator returns the operator of a request to the admin API.
func (c *access) operator(r *http.Request) (*admin.Admitted, error) {
	a := &c.cfg.Admin
	if c.cfg.AdminAccess() != config.AdminAsks {
		if err := c.admits()(r, telemetry.Others); err != nil {
			return nil, err
		}
		who := &admin.Admitted{Right: admin.Administer, Caller: task.Caller{Method: task.MethodOperator, Address: r.RemoteAddr}}
		if c.cfg.AdminAccess() == config.AdminOpen {
			who.ReadOnly = "admin.open admits everybody, so nobody may act here; use the command line, or set auth.schemes and admin.schemes"
		}
		return who, nil
	}
	schemes := slices.Clone(a.Schemes)
	if c.sessions != nil {
		schemes = append(schemes, auth.KindSession)
	}
	id := c.admin.Authenticate(r.Context(), rpc.Shown(r))
	caller, err := c.admin.Admit(id, &auth.Gate{Schemes: schemes})
	if err != nil {
		return nil, err
	}
	who := &admin.Admitted{Bound: c.bound(&caller)}
	right, matched := c.rightOf(&caller)
	if right == 0 {
		_, err := c.admin.Admit(id, &auth.Gate{Schemes: schemes, Scope: config.AdminView})
		return nil, err
	}
	who.Right, who.Caller = right, acting(caller, caller.Method)
	if id.Scheme() == auth.KindSession {
		who.Session = &admin.BrowserSession{ID: caller.Credential[strings.LastIndex(caller.Credential, "/")+1:], ExpiresAt: id.Until().UTC(), LogoutURL: login.LogoutPath}
	}
	who.Watch = func(end func(error)) func() {
		stop := c.admin.Watch(id, &auth.Gate{Schemes: schemes, Scope: matched}, end)
		if who.Bound || a.AllTenantsScope == "" {
			return stop
		}
		all := c.admin.Watch(id, &auth.Gate{Schemes: schemes, Scope: a.AllTenantsScope}, end)
		return func() { stop(); all() }
	}
	return who, nil
}

// bound reports whether an operator sees only the tenant of its credential.
func (c *access) bound(caller *task.Caller) bool {
	if all := c.cfg.Admin.AllTenantsScope; all != "" {
		return !caller.Has(all)
	}
	return caller.Tenant != ""
}

// rightOf returns what a caller may do as an operator, and the scope that says so; 0: nothing.
func (c *access) rightOf(caller *task.Caller) (admin.Right, string) {
	switch scope := c.cfg.Admin.Scope; {
	case caller.Has(scope):
		return admin.Administer, scope
	case caller.Has(config.AdminAdminister):
		return admin.Administer, config.AdminAdminister
	case caller.Has(config.AdminAct):
		return admin.Act, config.AdminAct
	case caller.Has(config.AdminView):
		return admin.View, config.AdminView
	}
	return 0, ""
}

// acting makes a caller the actor of the audit log, which tells acts of operators from those of clients.
func acting(caller task.Caller, kind string) task.Caller {
	caller.Credential = strings.TrimSpace(kind + " " + caller.Credential)
	caller.Method = task.MethodOperator
	return caller
}

// needs returns the error for an operator who lacks a right.
func (c *access) needs(r admin.Right) error {
	scope := map[admin.Right]string{
		admin.View: config.AdminView, admin.Act: config.AdminAct, admin.Administer: config.AdminAdminister,
	}[r]
	return task.Errorf(task.Forbidden, "the scope %s is needed", scope)
}

// adminSchemes returns the schemes that operators may use.
func (c *access) adminSchemes(all []auth.Scheme) []auth.Scheme {
	var out []auth.Scheme
	for _, s := range all {
		if !slices.Contains(c.cfg.Admin.Schemes, s.Name()) {
			continue
		}
		if keys, ok := s.(*auth.APIKeys); ok {
			s = keys.OrBearer()
		}
		out = append(out, s)
	}
	if c.sessions != nil {
		out = append(out, c.sessions)
	}
	return out
}

// adminExposed logs what non-operators can do on the admin address, if that may be a surprise.
func adminExposed(cfg *config.Config, log *slog.Logger) {
	switch access := cfg.AdminAccess(); {
	case !cfg.AdminExposed():
	case access == config.AdminOpen:
		log.Warn("ADMIN ADDRESS OPEN: EVERYBODY WHO CAN REACH IT MAY READ METRICS AND PROCESS MEMORY (admin.open)", "admin_listen", cfg.AdminListen)
	case access == config.AdminProbes:
		log.Info("admin address serves only the probes: other machines can reach it and auth.schemes is not set",
			"admin_listen", cfg.AdminListen)
	case access == config.AdminAsks && !cfg.Admin.TLS:
		log.Info("admin address receives operators' credentials without TLS (admin.tls)", "admin_listen", cfg.AdminListen)
	}
}
