package app

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/telemetry"
)

// admits is who is an operator for the admin address.
func (c *callers) admits() telemetry.Admit {
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
		// A page in a browser on this machine may have a name of its own lead here (DNS rebinding).
		return func(r *http.Request) error {
			if rpc.OfThisMachine(r.Host) {
				return nil
			}
			return task.Errorf(task.Forbidden, "this address asks nobody who they are and is for its own machine: name it by an address or localhost")
		}
	case config.AdminProbes:
	}
	return func(*http.Request) error {
		return task.Errorf(task.Forbidden, "more than the machine of the server reaches this address, and nobody is asked who they are: "+
			"set auth.schemes, or let admin_listen be on 127.0.0.1, or say that everybody is meant (admin.open)")
	}
}

// adminSchemes are those by which operators show who they are.
func (c *callers) adminSchemes(all []auth.Scheme) []auth.Scheme {
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

// adminExposed says how the admin address stands to those who are no operators, where that may surprise.
func adminExposed(cfg *config.Config, log *slog.Logger) {
	switch access := cfg.AdminAccess(); {
	case !cfg.AdminExposed():
	case access == config.AdminOpen:
		log.Warn("EVERYBODY WHO REACHES THE ADMIN ADDRESS MAY READ METRICS AND THE MEMORY OF THIS PROCESS (admin.open)", "admin_listen", cfg.AdminListen)
	case access == config.AdminProbes:
		log.Info("the admin address serves the probes alone: more than this machine reaches it, and there is no auth.schemes to ask operators by",
			"admin_listen", cfg.AdminListen)
	case access == config.AdminAsks && !cfg.Admin.TLS:
		log.Info("operators' credentials go over the admin address without TLS (admin.tls)", "admin_listen", cfg.AdminListen)
	}
}
