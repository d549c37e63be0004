package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const hash = "$2a$12$WXUPqV8rXUIuJd5rvlN7hO0UPnm.LY3FIiNuRmbM6r5T8qk5tG1Ya"

func TestSchemes(t *testing.T) {
	t.Parallel()
	c := loaded(t, `
auth:
  schemes:
    - {name: keys, kind: api_key}
    - name: users
      kind: basic
      basic: {users: [{name: alice, password_hash: "`+hash+`", tenant: acme, scopes: [weather:use]}]}
    - name: sso
      kind: jwt
      jwt: {issuer: "https://id.example.com", audience: [holdfast], subject_prefix: "a:"}
    - name: other
      kind: jwt
      jwt: {issuer: "http://127.0.0.1:1", audience: [holdfast], subject_prefix: "b:"}
    - name: certs
      kind: mtls
      mtls: {tenant: machines, subject_prefix: "c:"}
tls: {cert_file: c.pem, key_file: k.pem, client_ca_file: a.pem}
agents:
  - {name: all, executor: {kind: demo}}
  - name: some
    executor: {kind: demo}
    auth: {schemes: [sso, keys], scope: "weather:use"}
    card: {skills: [{id: s, scope: "weather:secret"}]}
  - {name: open, executor: {kind: demo}, auth: {schemes: []}}
`)
	require.Equal(t, []string{"keys", "users", "sso", "other", "certs"}, c.Agents[0].Auth.Schemes)
	require.Equal(t, AgentAuth{Schemes: []string{"sso", "keys"}, Scope: "weather:use", Visibility: VisibleToOwner}, c.Agents[1].Auth)
	require.Equal(t, []string{"open"}, c.OpenAgents())
	require.Equal(t, "https://127.0.0.1:8080", c.BaseURL(c.Listen))
}

func TestExposed(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]bool{
		"127.0.0.1:0": false, "localhost:0": false, "[::1]:0": false, "127.8.8.8:0": false, ":0": true, "0.0.0.0:0": true, "[::]:0": true, "10.0.0.1:0": true,
	} {
		c := Default()
		c.Listen, c.GRPCListen = listen, GRPCOff
		require.Equal(t, want, len(c.Exposed()) > 0, listen)
		c.Listen, c.GRPCListen = "127.0.0.1:0", listen
		require.Equal(t, want, len(c.Exposed()) > 0, listen)
		c.Roles = []Role{RoleWorker}
		require.Empty(t, c.Exposed())
	}
}

// Other people's clients set webhooks at any address, so they need https and the receiver's consent unless the operator
// says otherwise.
func TestWebhooksOfOtherMachinesAreRestricted(t *testing.T) {
	t.Parallel()
	const open = "auth: {none: true}\n"
	for content, want := range map[string]bool{
		"":                                       false,
		"listen: '[::1]:0'":                      false,
		"listen: ':0'":                           true,
		"grpc_listen: ':0'":                      true,
		"listen: ':0'\nroles: [worker, push]":    false,
		"public_url: http://localhost:8080":      false,
		"public_url: https://agents.example.com": true,
		"public_url: https://agents.example.com\nroles: [push]": true,
	} {
		c := loaded(t, open+content)
		require.Equal(t, want, c.Push.HTTPSOnly, content)
		require.Equal(t, want, c.Push.Challenge, content)
	}
	for _, listen := range []string{"listen: ':0'", "listen: 127.0.0.1:0"} {
		for _, set := range []string{"true", "false"} {
			c := loaded(t, open+listen+"\npush: {https_only: "+set+", validation_challenge: "+set+"}")
			require.Equal(t, set == "true", c.Push.HTTPSOnly, listen)
			require.Equal(t, set == "true", c.Push.Challenge, listen)
		}
	}
}

func TestVisibility(t *testing.T) {
	t.Parallel()
	c := loaded(t, `
auth:
  visibility: tenant
  row_level_security: require
agents:
  - name: all
    executor: {kind: demo}
  - name: own
    auth: {visibility: owner}
    executor: {kind: demo}
`)
	require.Equal(t, VisibleToTenant, c.Agents[0].Auth.Visibility)
	require.Equal(t, VisibleToOwner, c.Agents[1].Auth.Visibility)
	require.Equal(t, RowSecurityRequire, c.Auth.RowSecurity)
}

// A scheme without tenants is fine if the agent does not accept it. So are keys, because each key may have a tenant.
func TestTenantVisibilityRequiresTenants(t *testing.T) {
	t.Parallel()
	c := loaded(t, `
auth:
  schemes:
    - {name: keys, kind: api_key}
    - {name: orgs, kind: jwt, jwt: {issuer: "https://org.example.com", audience: [a], tenant_claim: org}}
    - {name: users, kind: basic, basic: {users_file: users}}
agents:
  - {name: shared, executor: {kind: demo}, auth: {visibility: tenant}}
  - {name: own, executor: {kind: demo}, auth: {schemes: [users]}}
  - {name: open, executor: {kind: demo}, auth: {visibility: tenant, schemes: []}}
`)
	require.Equal(t, []string{"shared"}, c.TenantVisible("users"))
}

func TestLocalOnly(t *testing.T) {
	t.Parallel()
	load := func(more string) *Config {
		c := loaded(t, more+"\nagents: [{name: a, executor: {kind: demo}}]\n")
		return c
	}
	require.True(t, load("").LocalOnly())
	require.False(t, load("auth: {none: true}").LocalOnly(), "the operator has allowed open access")
	require.False(t, load("auth: {schemes: [{name: keys, kind: api_key}]}").LocalOnly(), "a browser's page may use any host name")
	require.False(t, load(`listen: ":0"`).LocalOnly())
	// A container listens on every address, and its port is published on loopback.
	for public, want := range map[string]bool{
		"http://localhost:8080": true, "http://LOCALHOST": true, "https://127.0.0.1": true, "http://[::1]:8080": true,
		"https://a2a.example.com": false, "http://localhost.example.com": false, "http://10.0.0.1": false,
	} {
		c := load("auth: {none: true}\nlisten: ':0'\npublic_url: '" + public + "'")
		require.Equal(t, want, c.LocalOnly(), public)
	}
	require.False(t, load("public_url: http://localhost:8080\nauth: {schemes: [{name: keys, kind: api_key}]}").LocalOnly())
}

// Beyond loopback, metrics and profiles are for operators or for nobody, unless the configuration opens them.
func TestAdminAccess(t *testing.T) {
	t.Parallel()
	const schemes = `
auth: {schemes: [{name: keys, kind: api_key}, {name: certs, kind: mtls}]}
tls: {cert_file: c.pem, key_file: k.pem, client_ca_file: a.pem}
`
	for about, c := range map[string]struct {
		content string
		want    AdminAccess
		schemes []string
	}{
		"on loopback":                  {schemes, AdminLocal, nil},
		"on loopback, asking":          {schemes + "admin: {schemes: [keys]}", AdminAsks, []string{"keys"}},
		"reachable":                    {schemes + `admin_listen: ":9090"`, AdminAsks, []string{"keys"}},
		"reachable, with certificates": {schemes + "admin_listen: \":9090\"\nadmin: {tls: true}", AdminAsks, []string{"keys", "certs"}},
		"reachable, with some":         {schemes + "admin_listen: \":9090\"\nadmin: {tls: true, schemes: [certs]}", AdminAsks, []string{"certs"}},
		"reachable, without schemes":   {`admin_listen: ":9090"`, AdminProbes, nil},
		"reachable, asking is off":     {schemes + "admin_listen: \":9090\"\nadmin: {schemes: []}", AdminProbes, nil},
		"reachable, and open":          {"admin_listen: \":9090\"\nadmin: {open: true}", AdminOpen, nil},
		"open in spite of schemes":     {schemes + "admin_listen: \":9090\"\nadmin: {open: true}", AdminOpen, nil},
	} {
		cfg := loaded(t, c.content)
		require.Equal(t, c.want, cfg.AdminAccess(), about)
		require.Equal(t, c.schemes, append([]string(nil), cfg.Admin.Schemes...), about)
	}
	grafana := `https://grafana.example/explore?left={"queries":[{"query":"{trace_id}"}]}`
	cfg := loaded(t, "admin: {trace_url: '"+grafana+"'}")
	require.Equal(t, grafana, cfg.Admin.TraceURL)
}
