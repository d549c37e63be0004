package server

import (
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/admin/console"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/worker/remote"
)

// announce tells operators the addresses, and new users the next steps.
func announce(e *env, p *ports, remote *remote.API) {
	admin := e.cfg.AdminURL(p.admin.Addr().String())
	log := e.log.With("version", e.Version, "roles", roles(e.cfg))
	if p.public == nil {
		log.Info("server ready", "admin", admin)
		return
	}
	url := p.baseURL(e.cfg)
	if p.grpc != nil {
		log = log.With("grpc", p.grpc.Addr().String())
	}
	log.Info("server ready", "url", url, "listen", p.public.Addr().String(), "admin", admin)
	if e.cfg.DatabaseURL == "" {
		// Verbs of clients in this directory talk to this server.
		s := &config.Serving{URL: url, Listen: e.cfg.Listen, GRPCListen: e.cfg.GRPCListen, AdminListen: e.cfg.AdminListen}
		if err := s.Write(e.cfg.DataDir); err != nil {
			log.Warn("the verbs of clients in this directory need --url", "error", err)
		}
	}
	if e.Ready != nil {
		e.Ready(Developing{URL: url, Console: admin + console.Path, Moved: p.moved, Ended: remote.Ended})
	}
	if e.Banner != nil && e.first {
		_, _ = fmt.Fprintf(e.Banner, urlBanner, url, admin+console.Path)
	}
}

func (e *env) unannounce() {
	if e.cfg.DatabaseURL == "" {
		config.ForgetServing(e.cfg.DataDir)
	}
}

const urlBanner = `
Holdfast serves %[1]s
The agent's card: %[1]s/.well-known/agent-card.json
The console: %[2]s
Try:

  curl -s %[1]s -H 'Content-Type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"message/send",
    "params":{"message":{"messageId":"m-1","role":"user","parts":[{"kind":"text","text":"echo:hello"}]}}}'

`
