package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/command"
)

// surroundings are the checks that need no database.
func (e *examination) surroundings() []check {
	checks := []check{
		{"configuration", e.configuration},
		{"public url", e.publicURL},
		{"listen", e.listen},
		{"grpc_listen", e.grpcListen},
		{"callers", e.callers},
		{"admin_listen", e.adminListen},
		{"operators", e.operators},
		{"open files", e.openFiles},
	}
	if e.Config.HasRole(config.RoleWorker) {
		for i := range e.Config.Agents {
			a := &e.Config.Agents[i]
			checks = append(checks, check{"agent " + a.Name, func(ctx context.Context) ([]Finding, error) { return agent(ctx, a) }})
		}
	}
	return checks
}

func (e *examination) configuration(context.Context) ([]Finding, error) {
	found := oks("valid; from %s", e.Sources)
	if len(e.Strangers) > 0 {
		found = append(found, warns("Holdfast does not know these variables: %s", strings.Join(e.Strangers, ", ")).
			advise("check the spelling; docs/configuration.md lists the known variables")...)
	}
	return found, nil
}

func (e *examination) publicURL(context.Context) ([]Finding, error) {
	cfg := e.Config
	if !cfg.HasRole(config.RoleAPI) {
		return oks("not needed: this replica serves no clients"), nil
	}
	base, err := url.Parse(cfg.BaseURL(cfg.Listen))
	if err != nil {
		return nil, errors.New("is not a URL")
	}
	inside := loopback(base.Hostname())
	listens, _, _ := net.SplitHostPort(cfg.Listen)
	switch {
	case inside && !loopback(listens) && cfg.PublicURL == "":
		return warns("other machines can reach listen, but the cards name %s", base.Redacted()).
			advise("set public_url (HOLDFAST_PUBLIC_URL) to the URL that clients use"), nil
	case inside && !loopback(listens):
		return warns("the cards name %s, which only this machine can reach", base.Redacted()).
			advise("set public_url (HOLDFAST_PUBLIC_URL) to the URL that clients use"), nil
	}
	return oks("the cards name %s", base.Redacted()), nil
}

// loopback reports whether only this machine can reach a host.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (e *examination) listen(ctx context.Context) ([]Finding, error) {
	if !e.Config.HasRole(config.RoleAPI) {
		return oks("not needed: this replica serves no clients"), nil
	}
	return address(ctx, e.Config.Listen, func(addr string) (findings, error) {
		base := "http://" + addr
		if e.Config.TLS.Enabled() {
			base = "https://" + addr
		}
		var card struct{ Name string }
		if err := getJSON(ctx, base+"/.well-known/agent-card.json", &card); err != nil || card.Name == "" {
			return nil, errors.New("the program there has no agent card")
		}
		return oks("a server listens on %s: its agent is %s", e.Config.Listen, card.Name), nil
	})
}

func (e *examination) grpcListen(ctx context.Context) ([]Finding, error) {
	if !e.Config.ServesGRPC() {
		return oks("not needed: this replica does not serve gRPC"), nil
	}
	return address(ctx, e.Config.GRPCListen, func(addr string) (findings, error) {
		secrecy := insecure.NewCredentials()
		if e.Config.TLS.Enabled() {
			secrecy = credentials.NewTLS(ownTLS)
		}
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(secrecy))
		if err != nil {
			return nil, err
		}
		defer func() { _ = conn.Close() }()
		const service = "lf.a2a.v1.A2AService"
		r, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			return nil, errors.New("the program there does not serve " + service)
		}
		return oks("a server listens on %s: %s", e.Config.GRPCListen, strings.ToLower(r.GetStatus().String())), nil
	})
}

// callers reports who may use the agents.
func (e *examination) callers(context.Context) ([]Finding, error) {
	open, addresses := e.Config.OpenAgents(), e.Config.Exposed()
	switch who := strings.Join(open, ", "); {
	case !e.Config.HasRole(config.RoleAPI):
		return oks("not needed: this replica serves no clients"), nil
	case len(open) == 0 && len(addresses) > 0 && !e.Config.TLS.Enabled():
		return warns("every agent requires a credential, but credentials go over %s without TLS", strings.Join(addresses, ", ")).
			advise("set tls.cert_file and tls.key_file, unless a proxy in front speaks TLS"), nil
	case len(open) == 0:
		return oks("every agent requires a credential"), nil
	case len(addresses) == 0:
		return oks("these agents require no credential: %s; only this machine can reach them", who), nil
	case e.Config.Auth.None:
		return warns("these agents require no credential: %s; other machines can reach %s (auth.none)", who, strings.Join(addresses, ", ")).
			advise("set auth.schemes, unless everybody who can reach it may see all tasks"), nil
	default:
		return fails("these agents require no credential: %s; other machines can reach %s, so the server will not start",
			who, strings.Join(addresses, ", ")).
			advise("set auth.schemes, listen on 127.0.0.1, or set auth.none (HOLDFAST_AUTH_NONE=true)"), nil
	}
}

func (e *examination) adminListen(ctx context.Context) ([]Finding, error) {
	return address(ctx, e.Config.AdminListen, func(string) (findings, error) {
		base := e.Config.AdminURL(e.Config.AdminListen)
		var ready struct {
			Status string
			Checks []struct{ Name, Status, Error string }
		}
		if err := getJSON(ctx, base+"/readyz", &ready); err != nil || ready.Status == "" {
			return nil, errors.New("the program there does not answer /readyz as Holdfast does")
		}
		if ready.Status == "ok" {
			return oks("a server listens on %s: ready", e.Config.AdminListen), nil
		}
		var bad []string
		if len(ready.Checks) == 0 {
			bad = append(bad, "only operators see why")
		}
		for _, c := range ready.Checks {
			if c.Status != "ok" {
				bad = append(bad, c.Name+": "+c.Error)
			}
		}
		found := warns
		if ready.Status == "failed" {
			found = fails
		}
		return found("a server listens on %s, but it is %s: %s", e.Config.AdminListen, ready.Status, strings.Join(bad, "; ")).
			advise("see /readyz in docs/operations.md"), nil
	})
}

// operators reports who may read metrics and profiles.
func (e *examination) operators(context.Context) ([]Finding, error) {
	cfg := e.Config
	switch at := cfg.AdminListen; cfg.AdminAccess() {
	case config.AdminLocal:
		return oks("%s requires no credential; only this machine can reach it", at), nil
	case config.AdminProbes:
		return oks("%s serves only the probes: other machines can reach it, and it requires no credential", at), nil
	case config.AdminOpen:
		if !cfg.AdminExposed() {
			return oks("%s requires no credential (admin.open); only this machine can reach it", at), nil
		}
		return warns("%s serves metrics, and profiles with the contents of memory, to everybody who can reach it (admin.open)", at).
			advise("set auth.schemes and remove admin.open, unless nobody else can reach it"), nil
	case config.AdminAsks:
		if cfg.AdminExposed() && !cfg.Admin.TLS {
			return warns("%s requires the scope %s, but operators' credentials go there without TLS", at, cfg.Admin.Scope).
				advise("set admin.tls, unless you control the network between"), nil
		}
		return oks("%s requires the scope %s", at, cfg.Admin.Scope), nil
	}
	return nil, errors.New("unknown access")
}

// address checks that a listen address is free, or that served recognizes its server.
func address(ctx context.Context, addr string, served func(addr string) (findings, error)) ([]Finding, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err == nil {
		_ = l.Close()
		return oks("%s is free", addr), nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fails("%v", err).advise("choose another address: a server cannot listen here"), nil
	}
	found, err := served(config.ReachableAddr(addr))
	if err != nil {
		return fails("%s is taken: %v", addr, err).advise("stop the program that listens there, or choose another address"), nil
	}
	return found, nil
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := own.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into)
}

// direct uses no proxy and follows no redirects, as the executor does.
var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

var ownTLS = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see own

// own calls the server at its listen address, which its certificate need not cover. It sends no credential.
var own = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: ownTLS},
	CheckRedirect: direct.CheckRedirect,
}

func (e *examination) openFiles(context.Context) ([]Finding, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	want := uint64(100)
	if e.Config.HasRole(config.RoleAPI) {
		want += uint64(e.Config.Limits.MaxStreams)
	}
	if limit.Max < want {
		return warns("at most %d, but limits.max_streams alone needs %d", limit.Max, e.Config.Limits.MaxStreams).
			advise("raise the hard limit (ulimit -Hn, LimitNOFILE=) above %d or lower limits.max_streams", want), nil
	}
	return oks("at most %d", limit.Max), nil
}

// agent checks whether a run could start, and starts none.
func agent(ctx context.Context, a *config.Agent) ([]Finding, error) {
	switch a.Executor.Kind {
	case config.ExecutorCommand:
		c := a.Executor.Command
		if _, err := command.New(command.Options{Argv: c.Argv, Dir: c.Dir, Env: c.Env, Inherit: c.Inherit}); err != nil {
			return fails("%v", err).advise("install the program here or correct agents[].executor.command"), nil
		}
		return oks("command: %s is installed", c.Argv[0]), nil
	case config.ExecutorHTTP:
		return httpAgent(ctx, a.Executor.HTTP.URL)
	case config.ExecutorA2A:
		return answers(ctx, "a2a", cmp.Or(a.Executor.A2A.URL, a.Executor.A2A.CardURL))
	case config.ExecutorOpenAI:
		m := a.Executor.OpenAI
		found, err := answers(ctx, "openai", m.BaseURL)
		for i := range m.Tools {
			if err != nil {
				return found, err
			}
			var more []Finding
			more, err = toolServer(ctx, &m.Tools[i])
			found = append(found, more...)
		}
		return found, err
	case config.ExecutorWorker:
		return oks("worker: its processes connect to the server; holdfast workers list shows them"), nil
	case config.ExecutorDemo, config.ExecutorGo:
	}
	return oks("%s: built in", a.Executor.Kind), nil
}

// toolServer checks whether a run could reach the tools of a model.
func toolServer(ctx context.Context, s *config.ToolServer) ([]Finding, error) {
	if s.URL != "" {
		return answers(ctx, "tools of "+s.Name, s.URL)
	}
	if _, err := command.NewProgram(command.Options{Argv: s.Argv, Dir: s.Dir, Env: s.Env, Inherit: s.Inherit}); err != nil {
		return fails("tools of %s: %v", s.Name, err).advise("install the program here or correct agents[].executor.openai.tools"), nil
	}
	return oks("tools of %s: %s is installed", s.Name, s.Argv[0]), nil
}

// answers checks whether a server is at an address. It sends no credential, and shows no path: it may be a secret, and the
// query even more likely.
func answers(ctx context.Context, kind, address string) ([]Finding, error) {
	target, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("its URL is invalid")
	}
	shown := fmt.Sprintf("%s://%s", target.Scheme, target.Host)
	// OPTIONS changes nothing. Any answer shows that a server is there.
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, target.String(), nil)
	if err != nil {
		return nil, errors.New("its URL is invalid")
	}
	req.URL.User = nil
	resp, err := direct.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // without the URL
	}
	if err != nil {
		return fails("%s: %s does not answer: %v", kind, shown, err).
			advise("start the agent or correct its URL; until then its tasks wait, for at most limits.unreachable_for"), nil
	}
	resp.Body.Close()
	return oks("%s: %s answers", kind, shown), nil
}
