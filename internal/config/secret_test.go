package config

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/secret"
)

func read(t *testing.T, s *secret.Source) string {
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
