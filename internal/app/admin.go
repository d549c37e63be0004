package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/telemetry"
)

// newAdmin makes the server of the admin address.
func newAdmin(e *env, access *access, st *store.Store, checks []telemetry.Check) *http.Server {
	s := &http.Server{
		Handler:           telemetry.AdminHandler(e.registry, access.admits(), []telemetry.Endpoint{purgeEndpoint(e, st)}, checks...),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second, // a profile may take longer to write
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
	if e.cfg.Admin.TLS {
		s.TLSConfig = access.tlsConfig()
	}
	return s
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
		gate := &auth.Gate{Schemes: c.cfg.Admin.Schemes, Scope: c.cfg.Admin.Scope}
		return func(r *http.Request) error {
			_, err := c.admin.Admit(c.admin.Authenticate(r.Context(), rpc.Shown(r)), gate)
			return err
		}
	case config.AdminOpen:
		return func(*http.Request) error { return nil }
	case config.AdminLocal:
		// A web page in a browser on this machine may point a host name of its own here (DNS rebinding).
		return func(r *http.Request) error {
			if rpc.OfThisMachine(r.Host) {
				return nil
			}
			return task.Errorf(task.Forbidden, "the admin address needs no credential and serves only its own machine; use an IP address or localhost as the host")
		}
	case config.AdminProbes:
	}
	return func(*http.Request) error {
		return task.Errorf(task.Forbidden, "other machines can reach the admin address and it needs no credential, so it serves only the probes; "+
			"set auth.schemes, put admin_listen on 127.0.0.1, or set admin.open: true to serve everybody")
	}
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
