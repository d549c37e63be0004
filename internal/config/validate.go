package config

import (
	"encoding/base64"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/push"
)

// agentName keeps names usable in a path, a metric label and a log line.
var agentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)

// reservedNames have another meaning in places where an agent's name may be. default is the agent at the root. other is
// the metric label of agents that this replica does not know. The rest are first segments of paths of A2A and of our own, where
// a tenant may be too; a tenant is an agent here.
var reservedNames = map[string]bool{
	"default": true, "other": true, "agents": true, "tasks": true, "v1": true, "resume": true, "run": true, "worker": true, "notifications": true,
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// headerName is a token of RFC 9110.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// validate makes the checks that types alone do not. It continues after each problem.
func (l *loader) validate(c *Config) {
	l.addresses(c)
	l.databases(c)
	if c.DataDir == "" {
		l.at("data_dir", "must not be empty")
	}
	if c.DatabaseURL == "" && c.Migrate != MigrateAuto {
		l.at("migrate", "is for an external database; remove it, or set database_url")
	}
	l.roles(c.Roles)
	l.networks("proxies.trusted", c.Proxies.Trusted)
	l.cors(&c.CORS)
	l.push(&c.Push)
	l.auth(c)
	l.admin(c)
	l.agents(c)
	l.check("", reflect.ValueOf(c).Elem())
}

// check compares values with the tags of their fields: range (two bounds; after 0| a value may also be 0), and one (the values
// that there are).
func (l *loader) check(path string, section reflect.Value) {
	for i := range section.NumField() {
		field, v := section.Type().Field(i), section.Field(i)
		key := join(path, field.Tag.Get("yaml"))
		switch {
		case l.hasProblem(key):
			continue
		case v.Kind() == reflect.Struct:
			l.check(key, v)
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
			for j := range v.Len() {
				l.check(fmt.Sprintf("%s[%d]", key, j), v.Index(j))
			}
		case v.Type() == keepType && !v.IsZero():
			l.keep(key, Keep(v.Int()))
		}
		if bounds := field.Tag.Get("range"); bounds != "" {
			l.inRange(key, v, bounds)
		}
		names := strings.Split(field.Tag.Get("one"), ",")
		if names[0] != "" && !slices.Contains(names, v.String()) && (v.String() != "" || l.given(key)) {
			l.at(key, "is %q; use one of %s", v, strings.Join(names, ", "))
		}
	}
}

func (l *loader) inRange(key string, v reflect.Value, bounds string) {
	bounds, orZero := strings.CutPrefix(bounds, "0|")
	if orZero && v.IsZero() {
		return
	}
	least, most, _ := strings.Cut(bounds, ",")
	low, high := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	l.setText(key, least, low)
	l.setText(key, most, high)
	if v.Int() < low.Int() || v.Int() > high.Int() {
		l.at(key, "is %s; write a value from %s to %s", show(v.Interface()), show(low.Interface()), show(high.Interface()))
	}
}

// leastKeep leaves time for the requests and runs under way. mostKeep catches mistakes: forever says it better.
const (
	leastKeep = time.Minute
	mostKeep  = 100 * 365 * 24 * time.Hour
)

func (l *loader) keep(key string, k Keep) {
	if k != Forever && !l.hasProblem(key) && (k.Duration() < leastKeep || k.Duration() > mostKeep) {
		l.at(key, "is %s; write a duration from %s to %s, or forever", k, show(leastKeep), show(mostKeep))
	}
}

func (l *loader) push(p *Push) {
	l.networks("push.allowed_networks", p.AllowedNetworks)
	l.networks("push.denied_networks", p.DeniedNetworks)
	for i, secret := range p.WebhookSecrets {
		if _, err := push.ParseSecret(secret); err != nil {
			l.at(fmt.Sprintf("push.webhook_secrets[%d]", i), "%s", err)
		}
	}
	for i, key := range p.SecretKeys {
		if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != 32 {
			l.at(fmt.Sprintf("push.secret_keys[%d]", i), "is not base64 of 32 bytes; make a key with openssl rand -base64 32")
		}
	}
}

func (l *loader) networks(key string, networks []string) {
	for i, network := range networks {
		// A host's address with a network's prefix length is more likely a mistake than intent.
		if n, err := netip.ParsePrefix(network); err != nil || n != n.Masked() {
			l.at(fmt.Sprintf("%s[%d]", key, i), "%q is not a network; write one such as 10.1.0.0/16 or fd00:1::/32", network)
		}
	}
}

func (l *loader) addresses(c *Config) {
	l.address("listen", c.Listen)
	l.address("admin_listen", c.AdminListen)
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && port != "0" && c.Listen == c.AdminListen {
		l.at("admin_listen", "is the same address as listen; choose another port")
	}
	l.grpc(c)
	if u := c.RunAPI.URL; u != "" && l.webURL("run_api.url", u) && strings.ContainsAny(u, "?#") {
		l.at("run_api.url", "must not have a query or a fragment")
	}
	if c.PublicURL == "" {
		return
	}
	if l.webURL("public_url", c.PublicURL) && strings.ContainsAny(c.PublicURL, "?#") {
		l.at("public_url", "must not have a query or a fragment")
	}
}

func (l *loader) grpc(c *Config) {
	if c.PublicGRPCAddress != "" {
		l.address("public_grpc_address", c.PublicGRPCAddress)
		if strings.HasPrefix(c.PublicGRPCAddress, ":") {
			l.at("public_grpc_address", "%q has no host; write host:port", c.PublicGRPCAddress)
		}
	}
	if c.GRPCListen == GRPCOff {
		return
	}
	l.address("grpc_listen", c.GRPCListen)
	if _, port, err := net.SplitHostPort(c.GRPCListen); err == nil && port != "0" {
		for _, other := range []struct{ key, addr string }{{"listen", c.Listen}, {"admin_listen", c.AdminListen}} {
			if c.GRPCListen == other.addr {
				l.at("grpc_listen", "is the same address as %s; choose another port", other.key)
			}
		}
	}
}

// cors requires full origins: a pattern of hosts is only as safe as the worst page on any of them.
func (l *loader) cors(c *CORS) {
	for i, origin := range c.AllowedOrigins {
		u, err := url.Parse(origin)
		switch {
		case origin == "*" && len(c.AllowedOrigins) == 1:
		case origin == "*":
			l.at("cors.allowed_origins", "* means every origin; remove the others")
		case err != nil || u.Scheme == "" || u.Host == "" || origin != strings.ToLower(u.Scheme+"://"+u.Host) || strings.Contains(origin, "*"):
			l.at(fmt.Sprintf("cors.allowed_origins[%d]", i), "%q is not an origin; write one such as https://app.example.com", origin)
		}
	}
	for i, name := range c.AllowedHeaders {
		if !headerName.MatchString(name) || name == "*" {
			l.at(fmt.Sprintf("cors.allowed_headers[%d]", i), "%q is not the name of an HTTP header", name)
		}
	}
}

func (l *loader) address(key, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		l.at(key, "%q is not an address; write host:port, such as 127.0.0.1:8080 or :8080", addr)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		l.at(key, "%q is not a port number; write 0 to 65535", port)
	}
}

// databases checks only the form. The driver checks the rest when it connects. The values contain passwords, so no
// message repeats them.
func (l *loader) databases(c *Config) {
	for _, db := range []struct{ key, dsn string }{
		{"database_url", c.DatabaseURL}, {"listen_database_url", c.ListenDatabaseURL},
	} {
		if db.dsn == "" || strings.Contains(db.dsn, "=") && !strings.Contains(db.dsn, "://") {
			continue
		}
		u, err := url.Parse(db.dsn)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			l.at(db.key, "is not a connection string; write postgres://user@host/database, or host=db user=holdfast")
		}
	}
	if c.DatabasePassword != nil {
		l.databasePassword(c)
	}
	if c.ListenDatabaseURL != "" && c.DatabaseURL == "" {
		l.at("listen_database_url", "needs database_url, because the embedded database has no pooler in front")
	}
}

// databasePassword checks that no other password would compete, and adds it to the URLs.
func (l *loader) databasePassword(c *Config) {
	if c.DatabaseURL == "" {
		l.at("database_password", "needs database_url: the embedded database has no password")
		return
	}
	for _, db := range []struct {
		key string
		url *string
	}{{"database_url", &c.DatabaseURL}, {"listen_database_url", &c.ListenDatabaseURL}} {
		switch {
		case *db.url == "" || l.hasProblem(db.key):
		case pgurl.HasPassword(*db.url):
			l.at(db.key, "has a password, and database_password gives one, too; remove one")
		default:
			*db.url = pgurl.WithPassword(*db.url, c.DatabasePassword)
		}
	}
}

const knownRoles = RoleAPI + ", " + RoleWorker + ", " + RolePush

func (l *loader) roles(roles []Role) {
	if len(roles) == 0 {
		l.at("roles", "must not be empty; use one or more of %s", knownRoles)
	}
	seen := map[Role]bool{}
	for _, r := range roles {
		switch {
		case r != RoleAPI && r != RoleWorker && r != RolePush:
			l.at("roles", "%q is not a role; use one or more of %s", r, knownRoles)
		case seen[r]:
			l.at("roles", "%q is given twice; remove one", r)
		}
		seen[r] = true
	}
}

func (l *loader) agents(c *Config) {
	agents := c.Agents
	if len(agents) == 0 && !l.hasProblem("agents") {
		l.at("agents", "must not be empty; remove the key to serve the demo agent")
	}
	names := map[string]int{}
	marked := -1
	for i := range agents {
		a, path := &agents[i], fmt.Sprintf("agents[%d]", i)
		if l.hasProblem(path) {
			continue
		}
		if first, twice := names[a.Name]; twice && a.Name != "" {
			l.at(path+".name", "%q is already the name of agents[%d]; choose another", a.Name, first)
		} else {
			names[a.Name] = i
		}
		if a.Default && marked >= 0 {
			l.at(path+".default", "agents[%d] is already the default; mark only one", marked)
		} else if a.Default {
			marked = i
		}
		l.agent(path, a)
		l.agentAuth(path, a, &c.Auth)
		if a.Executor.A2A.Push && c.HasRole(RoleWorker) && !c.KnowsRunAPI() {
			l.at(path+".executor.a2a.push", "needs the URL at which the agent reaches this server; set run_api.url or public_url")
		}
	}
	for i := range agents {
		if a, path := &agents[i], fmt.Sprintf("agents[%d]", i); a.Executor.Kind == ExecutorOpenAI && !l.hasProblem(path) {
			l.agentTools(path, a, names)
		}
	}
	for _, name := range l.programs {
		if i, configured := names[name]; !configured {
			l.at("agents", "has no agent named %q, which the program brings; add it", name)
		} else if agents[i].Executor.Kind != ExecutorGo {
			l.at(fmt.Sprintf("agents[%d].executor.kind", i), "must be go: the program brings this agent")
		}
	}
}

func (l *loader) agent(path string, a *Agent) {
	switch name := path + ".name"; {
	case l.hasProblem(name):
	case a.Name == "":
		l.at(name, "is missing")
	case reservedNames[a.Name]:
		l.at(name, "%q is reserved; choose another name", a.Name)
	case !agentName.MatchString(a.Name):
		l.at(name, "%q is not a valid name; use 1 to 63 lower-case letters, digits, - and _, with a letter or digit first and last", a.Name)
	}
	l.card(path+".card", &a.Card)
	l.executor(path+".executor", &a.Executor)
	if brought := slices.Contains(l.programs, a.Name); a.Executor.Kind == ExecutorGo && !brought {
		l.at(path+".executor.kind", "go needs a Go program that brings the agent %q with agent.Serve", a.Name)
	}

	if key := path + ".limits.concurrency"; l.given(key) && !l.hasProblem(key) { // without it, that of the executor
		l.inRange(key, reflect.ValueOf(a.Limits.Concurrency), "1,100000")
	}
}

func (l *loader) card(path string, c *Card) {
	if c.Version == "" {
		l.at(path+".version", "must not be empty")
	}
	if (c.Provider.Organization == "") != (c.Provider.URL == "") {
		l.at(path+".provider", "needs both organization and url")
	}
	for _, u := range []struct{ key, value string }{
		{".provider.url", c.Provider.URL}, {".documentation_url", c.DocumentationURL}, {".icon_url", c.IconURL},
	} {
		if u.value != "" {
			l.webURL(path+u.key, u.value)
		}
	}
	l.modes(path+".default_input_modes", c.DefaultInputModes)
	l.modes(path+".default_output_modes", c.DefaultOutputModes)
	l.extensions(path+".extensions", c.Extensions)
	ids := map[string]bool{}
	for i, s := range c.Skills {
		skill := fmt.Sprintf("%s.skills[%d]", path, i)
		switch {
		case l.hasProblem(skill), l.hasProblem(skill + ".id"):
		case s.ID == "":
			l.at(skill+".id", "is missing")
		case ids[s.ID]:
			l.at(skill+".id", "%q is already the id of another skill; choose another id", s.ID)
		}
		ids[s.ID] = true
		l.modes(skill+".input_modes", s.InputModes)
		l.modes(skill+".output_modes", s.OutputModes)
	}
}

func (l *loader) extensions(path string, extensions []Extension) {
	uris := map[string]bool{}
	for i, e := range extensions {
		key := fmt.Sprintf("%s[%d].uri", path, i)
		switch u, err := url.Parse(e.URI); {
		case l.hasProblem(key):
		case e.URI == "":
			l.at(key, "is missing")
		case err != nil || !u.IsAbs() || strings.ContainsAny(e.URI, ", "):
			// Headers list them, separated by commas.
			l.at(key, "%q is not an absolute URI, or it contains a comma or space", e.URI)
		case uris[e.URI]:
			l.at(key, "%q is already declared; remove one", e.URI)
		}
		uris[e.URI] = true
		if len(e.Params) > 0 && e.Params[0] != '{' {
			l.at(fmt.Sprintf("%s[%d].params", path, i), "must be a mapping")
		}
	}
}

func (l *loader) modes(key string, modes []string) {
	for i, m := range modes {
		if t, _, err := mime.ParseMediaType(m); err != nil || !strings.Contains(t, "/") {
			l.at(fmt.Sprintf("%s[%d]", key, i), "%q is not a media type; write one such as text/plain", m)
		}
	}
}

func (l *loader) executor(path string, e *Executor) {
	kind := path + ".kind"
	switch {
	case l.hasProblem(path) || l.hasProblem(kind):
		return
	case e.Kind == "":
		l.at(kind, "is missing; use %s, %s, %s, %s, %s, %s or %s", ExecutorDemo, ExecutorHTTP, ExecutorCommand, ExecutorWorker, ExecutorA2A, ExecutorOpenAI, ExecutorGo)
		return
	}
	for _, section := range []ExecutorKind{ExecutorHTTP, ExecutorCommand, ExecutorWorker, ExecutorA2A, ExecutorOpenAI} {
		if key := join(path, string(section)); section != e.Kind && l.given(key) {
			l.at(key, "does not belong to an executor of kind %s; remove it", e.Kind)
		}
	}
	switch e.Kind {
	case ExecutorDemo, ExecutorGo, ExecutorWorker:
	case ExecutorHTTP:
		l.httpExecutor(path+".http", &e.HTTP)
	case ExecutorCommand:
		l.commandExecutor(path+".command", &e.Command)
	case ExecutorA2A:
		l.a2aExecutor(path+".a2a", &e.A2A)
	case ExecutorOpenAI:
		l.openAIExecutor(path+".openai", &e.OpenAI)
	}
}

func (l *loader) httpExecutor(path string, h *HTTPExecutor) {
	switch {
	case l.hasProblem(path) || l.hasProblem(path+".url"):
	case h.URL == "":
		l.at(path+".url", "is missing; write the URL of the agent, such as http://127.0.0.1:9000/run")
	default:
		l.webURL(path+".url", h.URL)
	}
	if h.CancelURL != "" {
		l.webURL(path+".cancel_url", h.CancelURL)
	}
	l.headers(path+".headers", h.Headers)
}

// headers checks headers that go to a service. It repeats no value, because they have credentials.
func (l *loader) headers(path string, headers map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		key := path + "." + name
		if !headerName.MatchString(name) {
			l.at(key, "is not the name of an HTTP header")
		}
		if strings.ContainsAny(headers[name], "\r\n\x00") {
			l.at(key, "contains a line break or NUL; remove it")
		}
	}
}

func (l *loader) openAIExecutor(path string, o *OpenAIExecutor) {
	switch {
	case l.hasProblem(path) || l.hasProblem(path+".base_url"):
	case o.BaseURL == "":
		l.at(path+".base_url", "is missing; write the URL of the API, such as https://api.openai.com/v1")
	default:
		l.webURL(path+".base_url", o.BaseURL)
	}
	if !l.hasProblem(path) && !l.hasProblem(path+".model") && o.Model == "" {
		l.at(path+".model", "is missing; write the name of the model")
	}
	l.headers(path+".headers", o.Headers)
	l.toolServers(path+".tools", o.Tools)
}

// toolServerName leaves room for the tool's own name in the 64 characters of a function's name.
var toolServerName = regexp.MustCompile(`^[a-zA-Z0-9-]{1,24}$`)

func (l *loader) toolServers(path string, servers []ToolServer) {
	names := map[string]bool{}
	for i := range servers {
		s, at := &servers[i], fmt.Sprintf("%s[%d]", path, i)
		name := at + ".name"
		switch {
		case l.hasProblem(at), l.hasProblem(name):
		case s.Name == "":
			l.at(name, "is missing")
		case !toolServerName.MatchString(s.Name):
			l.at(name, "%q is not a valid name; use 1 to 24 letters, digits and -", s.Name)
		case names[s.Name]:
			l.at(name, "%q is already the name of another server; choose another name", s.Name)
		}
		names[s.Name] = true
		switch {
		case l.hasProblem(at):
		case (len(s.Argv) == 0) == (s.URL == ""):
			l.at(at, "needs either argv, a program, or url, an address")
		case s.URL != "":
			l.webURL(at+".url", s.URL)
		case s.Argv[0] == "":
			l.at(at+".argv", "is missing; write the program and its arguments")
		}
		l.headers(at+".headers", s.Headers)
		l.environment(at, s.Env, s.Inherit)
	}
}

// agentTools checks the agents that a model may call.
func (l *loader) agentTools(path string, a *Agent, known map[string]int) {
	tools, all := a.Executor.OpenAI.Agents, path+".executor.openai.agents"
	if len(tools) > 0 && a.History == HistoryNone {
		l.at(all, "needs a history: the model gets the results of calls in a later turn; set history to task or context")
	}
	names := map[string]bool{}
	for i := range tools {
		t, name := &tools[i], fmt.Sprintf("%s[%d].name", all, i)
		switch _, exists := known[t.Name]; {
		case l.hasProblem(name):
		case t.Name == "":
			l.at(name, "is missing")
		case !exists:
			l.at(name, "there is no agent %q", t.Name)
		case t.Name == a.Name && !a.RecursiveCalls:
			l.at(name, "is the agent itself, which may not call itself; set recursive_calls to allow that")
		case names[t.Name]:
			l.at(name, "%q is in the list already; remove one", t.Name)
		}
		names[t.Name] = true
	}
}

// environment checks the variables of a program.
func (l *loader) environment(path string, set map[string]string, inherit []string) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !envName.MatchString(name) {
			l.at(path+".env."+name, "is not the name of an environment variable; use letters, digits and _, with no digit first")
		}
	}
	for i, name := range inherit {
		if !envName.MatchString(name) {
			l.at(fmt.Sprintf("%s.inherit[%d]", path, i), "%q is not the name of an environment variable", name)
		}
	}
}

// a2aExecutor checks the section. The executor itself knows the versions and bindings.
func (l *loader) a2aExecutor(path string, a *A2AExecutor) {
	if a.CardURL == "" && a.URL == "" && !l.hasProblem(path) && !l.hasProblem(path+".card_url") && !l.hasProblem(path+".url") {
		l.at(path+".card_url", "is missing; write the URL of the agent, such as https://agents.example.com/travel")
	}
	for _, u := range []struct{ key, value string }{{".card_url", a.CardURL}, {".url", a.URL}} {
		if u.value != "" {
			l.webURL(path+u.key, u.value)
		}
	}
	l.headers(path+".headers", a.Headers)
}

func (l *loader) commandExecutor(path string, c *CommandExecutor) {
	if !l.hasProblem(path) && !l.hasProblem(path+".argv") && (len(c.Argv) == 0 || c.Argv[0] == "") {
		l.at(path+".argv", "is missing; write the program and its arguments, such as [python3, agent.py]")
	}
	l.environment(path, c.Env, c.Inherit)
	if (c.UID == 0) != (c.GID == 0) {
		l.at(path+".uid", "needs gid, and gid needs uid; set both to numbers above 0, or neither")
	}
}

// webURL does not repeat the value, because a URL may contain a password.
func (l *loader) webURL(key, value string) bool {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		l.at(key, "is not an absolute URL; write http://host or https://host")
		return false
	}
	return true
}

// show writes a value as an operator would: 1h and not 1h0m0s.
func show(v any) string {
	d, ok := v.(time.Duration)
	if !ok {
		return fmt.Sprint(v)
	}
	s := d.String()
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}
