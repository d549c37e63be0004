package config

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

func TestSchemes(t *testing.T) {
	t.Parallel()
	c := loaded(t, `
auth:
  schemes:
    - {name: keys, kind: api_key}
    - name: users
      kind: basic
      basic: {users_file: users}
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

// Other people's clients set webhooks at any address, so they need https and the receiver's consent unless the operator says otherwise.
func TestWebhooksOfOtherMachinesAreRestricted(t *testing.T) {
	t.Parallel()
	const open = "auth: {none: true}\n"
	for content, want := range map[string]bool{
		"": false, "listen: '[::1]:0'": false, "listen: ':0'": true, "grpc_listen: ':0'": true,
		"listen: ':0'\nroles: [worker, push]": false, "public_url: http://localhost:8080": false,
		"public_url: https://agents.example.com":                true,
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
		require.Equal(t, want, load("auth: {none: true}\nlisten: ':0'\npublic_url: '"+public+"'").LocalOnly(), public)
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
	require.Equal(t, grafana, loaded(t, "admin: {trace_url: '"+grafana+"'}").Admin.TraceURL)
}

func TestPrices(t *testing.T) {
	t.Parallel()
	prices := loaded(t, "admin: {prices: {small: 0.25/2, gpt-5.1: 1.25 / 10}}").Admin.Prices
	require.Equal(t, map[string]string{"small": "0.25/2", "gpt-5.1": "1.25 / 10"}, prices)
	input, output, currency, err := ParsePrice("1.25 / 10 USD")
	require.NoError(t, err)
	require.Equal(t, []any{1.25, 10.0, "USD"}, []any{input, output, currency})
	for _, text := range []string{"", "1", "1 USD", "1 / 2 / 3", "1 / -2", "NaN / 1", "1 / 2 US dollars", "1 / 2 <script>alert"} {
		_, _, _, err := ParsePrice(text)
		require.ErrorContains(t, err, "write what a million input and output tokens cost", text)
	}
	_, err = Load(Source{File: file(t, "admin: {prices: {a: 1 / 2 USD, b: 1 / 2 EUR}}")})
	require.ErrorContains(t, err, "admin.prices.b: is in the currency")
}

func read(t *testing.T, s *secrets.Source) string {
	t.Helper()
	text, err := s.Read(t.Context())
	require.NoError(t, err)
	return text
}

// Every secret can come from a file, from a command, and those with a variable from a file that a variable names.
func TestSecretsFromFilesAndCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := func(fill byte) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), 32)))
	}
	of := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	values := map[string]string{
		"url": "postgres://app@db/x", "direct": "host=db user=app", "password": "p4ss", "keys": key('a') + "\n\n" + key('b'), "signing": "whsec_" + key('c'),
		"client": "c1ient", "api": "k3y", "bearer": "t0ken", "headers": "# for the gateway\nAuthorization: Bearer a:b\n\nX-Team: one ", "env": "TOKEN=a=b\nEMPTY=",
	}
	for _, give := range map[string]func(string) string{
		"_file":    func(value string) string { return fmt.Sprintf("_file: %q", of(value, values[value]+"\n")) },
		"_command": func(value string) string { return fmt.Sprintf("_command: [printf, '%%s', %q]", values[value]) },
	} {
		c := loaded(t, `
database_url`+give("url")+`
listen_database_url`+give("direct")+`
database_password`+give("password")+`
push:
  secret_keys`+give("keys")+`
  webhook_secrets`+give("signing")+`
auth: {schemes: [{name: sso, kind: jwt, jwt: {issuer: "https://id.example.com", audience: [x]}}]}
admin:
  schemes: [sso]
  public_url: https://admin.example.com
  login:
    scheme: sso
    client_id: me
    client_secret`+give("client")+`
agents:
  - name: model
    executor:
      kind: openai
      openai:
        base_url: https://api.test/v1
        model: small
        api_key`+give("api")+`
        headers`+give("headers")+`
        tools:
          - name: files
            argv: [x]
            env: {PLAIN: one}
            env`+give("env")+`
  - name: front
    executor:
      kind: a2a
      a2a:
        card_url: https://a.test
        headers: {X-Mine: two}
        headers`+give("headers")+`
        auth:
          bearer`+give("bearer")+`
`)
		require.True(t, strings.HasPrefix(c.DatabaseURL, values["url"]+"\x00"), "package pgurl has a test that reads it")
		require.True(t, strings.HasPrefix(c.ListenDatabaseURL, values["direct"]+"\x00"))
		require.Equal(t, "p4ss", read(t, c.DatabasePassword))
		require.Equal(t, []string{key('a'), key('b')}, c.Push.SecretKeys)
		require.Equal(t, []string{"whsec_" + key('c')}, c.Push.WebhookSecrets)
		require.Equal(t, "c1ient", read(t, c.Admin.Login.ClientSecret))
		model, front := c.Agents[0].Executor.OpenAI, c.Agents[1].Executor.A2A
		require.Equal(t, "k3y", read(t, model.APIKey))
		require.Equal(t, map[string]string{"Authorization": "Bearer a:b", "X-Team": "one"}, model.Headers)
		require.Equal(t, map[string]string{"PLAIN": "one", "TOKEN": "a=b", "EMPTY": ""}, model.Tools[0].Env)
		require.Equal(t, map[string]string{"X-Mine": "two", "Authorization": "Bearer a:b", "X-Team": "one"}, front.Headers)
		require.Equal(t, "t0ken", read(t, front.Auth.Bearer))
	}

	c, err := Load(Source{
		// The variables have priority: nothing of the file is read.
		File: file(t, "database_url_command: [/nowhere/program]\ndatabase_password: other\npush: {secret_keys: [wrong], webhook_secrets_file: /nowhere/file}\n"),
		Env: environment(map[string]string{
			"HOLDFAST_DATABASE_URL_FILE": of("url", values["url"]), "HOLDFAST_DATABASE_PASSWORD_FILE": of("password", "p4ss"),
			"HOLDFAST_SECRET_KEYS_FILE": of("keys", values["keys"]), "HOLDFAST_WEBHOOK_SECRETS": "whsec_" + key('d'),
		}),
	})
	require.NoError(t, err)
	require.Equal(t, "p4ss", read(t, c.DatabasePassword))
	require.Len(t, c.Push.SecretKeys, 2)
	require.Equal(t, []string{"whsec_" + key('d')}, c.Push.WebhookSecrets)

	c, err = Load(Source{File: file(t, "database_url_command: [/nowhere/program]\n"), Flags: map[string]string{"database_url": "postgres://flag@db/x"}})
	require.NoError(t, err)
	require.Equal(t, "postgres://flag@db/x", c.DatabaseURL, "a flag has priority")
}

// Mistakes name the key that the operator wrote, and show no secret.
func TestSecretsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	headers, keys := filepath.Join(dir, "headers"), filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(headers, []byte("X-A: s3cret\ns3cret\n"), 0o600))
	require.NoError(t, os.WriteFile(keys, []byte("s3cret\n"), 0o600))
	got := problems(t, `database_url: postgres://app:s3cret@db/x
database_password_file: `+keys+`
listen_database_url: postgres://app@db/x
listen_database_url_file: /nowhere/url
push:
  secret_keys_file: `+keys+`
  webhook_secrets_command: [sh, -c, "echo s3cret; echo denied >&2; exit 1"]
agents:
  - name: a
    executor:
      kind: http
      http:
        url: http://a
        headers_file: `+headers+`
        headers_command: [echo]
  - name: b
    executor:
      kind: command
      command:
        argv: [x]
        env_command: []
        env_fil: x
`, map[string]string{"HOLDFAST_ADMIN_LOGIN_CLIENT_SECRET": "s3cret", "HOLDFAST_ADMIN_LOGIN_CLIENT_SECRET_FILE": "/x"})
	require.NotContains(t, fmt.Sprint(got), "s3cret")
	require.ElementsMatch(t, []string{
		"environment variable HOLDFAST_ADMIN_LOGIN_CLIENT_SECRET_FILE: admin.login.client_secret_file: cannot be combined with HOLDFAST_ADMIN_LOGIN_CLIENT_SECRET; unset one of the variables",
		"holdfast.yaml:1: database_url: has a password, and database_password gives one, too; remove one",
		"holdfast.yaml:4: listen_database_url_file: cannot be combined with listen_database_url; remove one",
		"holdfast.yaml:6: push.secret_keys[0]: is not base64 of 32 bytes; make a key with openssl rand -base64 32",
		"holdfast.yaml:7: push.webhook_secrets_command: the command sh failed (exit status 1): denied",
		"holdfast.yaml:14: agents[0].executor.http.headers_file: line 2 is not a name, \":\" and a value",
		"holdfast.yaml:15: agents[0].executor.http.headers_command: cannot be combined with agents[0].executor.http.headers_file; remove one",
		"holdfast.yaml:21: agents[1].executor.command.env_command: must not be empty",
		"holdfast.yaml:22: agents[1].executor.command.env_fil: unknown key; did you mean env_file?",
	}, got)
	require.Equal(t, []string{"environment variable HOLDFAST_DATABASE_PASSWORD_FILE: database_password: needs database_url: the embedded database has no password"},
		problems(t, "", map[string]string{"HOLDFAST_DATABASE_PASSWORD_FILE": keys}))
}
