package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// problems loads content and returns its problems without the directory of the file.
func problems(t *testing.T, content string, vars map[string]string) []string {
	t.Helper()
	path := file(t, content)
	_, err := Load(Source{File: path, Env: environment(vars)})
	var mistakes *Error
	require.ErrorAs(t, err, &mistakes)
	texts := make([]string, len(mistakes.Problems))
	for i, p := range mistakes.Problems {
		texts[i] = strings.ReplaceAll(p.String(), path, "holdfast.yaml")
	}
	return texts
}

func TestDefaultConfigurationServesDemoAgent(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]Source{
		"no file":                  {},
		"a file of comments only":  {File: file(t, "# nothing yet\n")},
		"sections without content": {File: file(t, "log:\n  # level: debug\nlimits:\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Load(source)
			require.NoError(t, err)
			require.Len(t, c.Agents, 1)
			demo := c.DefaultAgent()
			require.NotNil(t, demo)
			require.Equal(t, "demo", demo.Name)
			require.Equal(t, ExecutorDemo, demo.Executor.Kind)
			require.True(t, demo.DirectReplies)
			require.Equal(t, 512, demo.Limits.Concurrency)
			require.NotEmpty(t, demo.Card.Skills)
			require.True(t, c.HasRole(RoleAPI))
			require.True(t, c.HasRole(RoleWorker))
			require.True(t, c.HasRole(RolePush))

			want := Default()
			want.Agents = c.Agents
			require.Empty(t, cmp.Diff(want, c))
		})
	}
}

func TestAgentDefaults(t *testing.T) {
	t.Parallel()
	c, err := Load(Source{File: file(t, `
agents:
  - name: weather
    card: {version: 1.10, skills: [{id: forecast}]}
    executor: {kind: http, http: {url: "http://localhost:9000"}}
  - name: notes
    executor: {kind: command, command: {argv: [cat]}}
    limits: {concurrency: 3}
`)})
	require.NoError(t, err)
	weather, notes := c.Agents[0], c.Agents[1]
	require.True(t, weather.Default, "without a mark the first agent is the default")
	require.False(t, notes.Default)
	require.Equal(t, "1.10", weather.Card.Version, "a version that looks like a number keeps its digits")
	require.Equal(t, 256, weather.Limits.Concurrency)
	require.Equal(t, 3, notes.Limits.Concurrency)
	require.Equal(t, 10*time.Second, weather.Executor.HTTP.ConnectTimeout)
	require.Equal(t, BusyEnqueue, notes.OnBusy)
	require.Equal(t, "weather", weather.Card.Name)
	require.Equal(t, []Skill{{ID: "forecast", Name: "forecast", Description: "forecast", Tags: []string{"forecast"}}}, weather.Card.Skills)
	require.Equal(t, "notes", notes.Card.Skills[0].ID)
}

func TestFlagsOverrideEnvironmentOverridesFile(t *testing.T) {
	t.Parallel()
	path := file(t, "listen: 127.0.0.1:1\nadmin_listen: 127.0.0.1:2\ndata_dir: from-file\nroles: [api, nonsense]\n")
	c, err := Load(Source{
		Env: environment(map[string]string{
			"HOLDFAST_CONFIG": path, "HOLDFAST_LISTEN": ":3", "HOLDFAST_ADMIN_LISTEN": ":4",
			"HOLDFAST_DATA_DIR": "", "HOLDFAST_ROLES": "worker, api", "HOLDFAST_LOG_LEVEL": "debug",
			"HOLDFAST_DATABASE_URL": "postgres://db/holdfast",
		}),
		Flags: map[string]string{"listen": ":5"},
	})
	require.NoError(t, err)
	require.Equal(t, ":5", c.Listen)
	require.Equal(t, ":4", c.AdminListen)
	require.Equal(t, "from-file", c.DataDir, "an empty variable counts as unset")
	require.Equal(t, []Role{RoleWorker, RoleAPI}, c.Roles, "the environment replaces the list of the file, with its errors")
	require.Equal(t, "debug", c.Log.Level)
	require.Equal(t, "postgres://db/holdfast", c.DatabaseURL)
}

func TestErrorsNameTheirSource(t *testing.T) {
	t.Parallel()
	_, err := Load(Source{
		Env:   environment(map[string]string{"HOLDFAST_LOG_FORMAT": "xml"}),
		Flags: map[string]string{"listen": "nowhere"},
	})
	require.ErrorContains(t, err, "environment variable HOLDFAST_LOG_FORMAT: log.format: is \"xml\"")
	require.ErrorContains(t, err, "flag for listen: listen: \"nowhere\" is not an address")
}

func TestWebhookSecrets(t *testing.T) {
	t.Parallel()
	const first, second = "NJfK9ku2EF2Ln7j6Xh3gsYxV6MC1mBv4qS9yF0sGgbk=", "c2Vjb25kIGtleSB0aGF0IGlzIG9mIHRoaXJ0eSB0d28="
	c, err := Load(Source{Env: environment(map[string]string{
		"HOLDFAST_SECRET_KEYS": first + ", " + second, "HOLDFAST_WEBHOOK_SECRETS": "whsec_" + first,
	})})
	require.NoError(t, err)
	require.Equal(t, []string{first, second}, c.Push.SecretKeys)
	require.Equal(t, []string{"whsec_" + first}, c.Push.WebhookSecrets)

	_, err = Load(Source{Env: environment(map[string]string{
		"HOLDFAST_SECRET_KEYS": first + ",sesame", "HOLDFAST_WEBHOOK_SECRETS": "sesame",
	})})
	require.ErrorContains(t, err, "environment variable HOLDFAST_SECRET_KEYS: push.secret_keys[1]: is not base64 of 32 bytes")
	require.ErrorContains(t, err, "environment variable HOLDFAST_WEBHOOK_SECRETS: push.webhook_secrets[0]: is not whsec_")
	require.NotContains(t, err.Error(), "sesame")
}

func TestVariablesAreExpanded(t *testing.T) {
	t.Parallel()
	c, err := Load(Source{
		File: file(t, `
store: {pool_size: "${POOL}"}
limits: {max_block: "${BLOCK}s"}
agents:
  - name: a
    executor:
      kind: http
      http: {url: "http://${HOST}/${PATH_PART}", headers: {X-Literal: "$${HOST} $5", X-Empty: "${EMPTY}"}}
`),
		Env: environment(map[string]string{"POOL": "7", "BLOCK": "30", "HOST": "localhost", "PATH_PART": "${HOST}", "EMPTY": ""}),
	})
	require.NoError(t, err)
	require.Equal(t, 7, c.Store.PoolSize)
	require.Equal(t, 30*time.Second, c.Limits.MaxBlock)
	h := c.Agents[0].Executor.HTTP
	require.Equal(t, "http://localhost/${HOST}", h.URL, "a value is not expanded again")
	require.Equal(t, map[string]string{"X-Literal": "${HOST} $5", "X-Empty": ""}, h.Headers)

	require.Equal(t, []string{
		"holdfast.yaml:1: data_dir: environment variable NOT_SET, NEITHER is not set",
		"holdfast.yaml:2: public_url: ${ without a closing }; write $${ for a literal ${",
	}, problems(t, "data_dir: ${NOT_SET}/${NEITHER}\npublic_url: http://${HOST\n", nil))
}

func TestParametersOfAModelAreJSON(t *testing.T) {
	t.Parallel()
	c, err := Load(Source{
		File: file(t, `
agents:
  - name: a
    executor:
      kind: openai
      openai:
        base_url: https://api.test/v1
        model: small
        parameters:
          temperature: 0.20
          seed: 12345678901234567
          stop: ["\n", "${STOP}"]
          stream_options: null
          response_format: {type: json_schema, json_schema: {strict: true, schema: {type: object}}}
`),
		Env: environment(map[string]string{"STOP": "end"}),
	})
	require.NoError(t, err)
	got := map[string]string{}
	for name, value := range c.Agents[0].Executor.OpenAI.Parameters {
		got[name] = string(value)
	}
	require.Equal(t, map[string]string{
		"temperature": "0.2", "seed": "12345678901234567", "stop": `["\n","end"]`, "stream_options": "null",
		"response_format": `{"json_schema":{"schema":{"type":"object"},"strict":true},"type":"json_schema"}`,
	}, got)

	require.Equal(t, []string{
		"holdfast.yaml:6: agents[0].executor.openai.base_url: is missing; write the URL of the API, such as https://api.openai.com/v1",
		"holdfast.yaml:6: agents[0].executor.openai.model: is missing; write the name of the model",
		"holdfast.yaml:7: agents[0].executor.openai.api_key_file: cannot be combined with agents[0].executor.openai.api_key; remove one",
		"holdfast.yaml:8: agents[0].executor.openai.parameters.a: has no form in JSON, such as .nan; write another value",
		"holdfast.yaml:9: agents[0].executor.openai.parameters.b.c: environment variable NOT_SET is not set",
	}, problems(t, `agents:
  - name: a
    executor:
      kind: openai
      openai:
        api_key: sesame
        api_key_file: /run/key
        parameters: {a: .nan,
          b: {c: "${NOT_SET}"}}
`, nil))
}

func TestServersOfTools(t *testing.T) {
	t.Parallel()
	const tools = "holdfast.yaml:7: agents[0].executor.openai.tools"
	require.Equal(t, []string{
		tools + "[0]: needs either argv, a program, or url, an address",
		tools + "[1].name: \"twin\" is already the name of another server; choose another name",
		tools + "[1].url: is not an absolute URL; write http://host or https://host",
		tools + "[2].name: \"a b\" is not a valid name; use 1 to 24 letters, digits and -",
		tools + "[2]: needs either argv, a program, or url, an address",
		tools + "[3].name: is missing",
		tools + "[3].env.1: is not the name of an environment variable; use letters, digits and _, with no digit first",
	}, problems(t, `agents:
  - name: a
    executor:
      kind: openai
      openai: {base_url: http://api.test, model: small,
        tools: [
          {name: twin}, {name: twin, url: "host:1"}, {name: a b, argv: [x], url: "http://x.test"}, {argv: [x], env: {"1": a}}]}
`, nil))
}

func TestAgentsOfModels(t *testing.T) {
	t.Parallel()
	const agents = "holdfast.yaml:6: agents[0].executor.openai.agents"
	require.Equal(t, []string{
		agents + ": needs a history: the model gets the results of calls in a later turn; set history to task or context",
		agents + "[0].name: is the agent itself, which may not call itself; set recursive_calls to allow that",
		agents + "[2].name: \"b\" is in the list already; remove one",
		agents + "[3].name: there is no agent \"c\"",
		agents + "[4].name: is missing",
	}, problems(t, `agents:
  - name: a
    history: none
    executor:
      kind: openai
      openai: {base_url: http://api.test, model: small, agents: [{name: a}, {name: b}, {name: b}, {name: c}, {approve: true}]}
  - {name: b, recursive_calls: true, executor: {kind: openai, openai: {base_url: http://api.test, model: small, agents: [{name: a}, {name: b}]}}}
`, nil))
}

func TestErrorsNameEveryLine(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("testdata/mistakes.yaml")
	require.NoError(t, err)
	got := strings.Join(problems(t, string(content), nil), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("testdata/mistakes.txt", []byte(got), 0o600))
	}
	want, err := os.ReadFile("testdata/mistakes.txt")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), got))
	require.NotContains(t, got, "sesame", "errors never repeat a password")
}

func TestInvalidOrigins(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		`holdfast.yaml:2: cors.allowed_origins: * means every origin; remove the others`,
		`holdfast.yaml:2: cors.allowed_origins[1]: "app.example.com" is not an origin; write one such as https://app.example.com`,
		`holdfast.yaml:2: cors.allowed_origins[2]: "https://*.example.com" is not an origin; write one such as https://app.example.com`,
		`holdfast.yaml:2: cors.allowed_origins[3]: "https://app.example.com/" is not an origin; write one such as https://app.example.com`,
		`holdfast.yaml:2: cors.allowed_origins[4]: "null" is not an origin; write one such as https://app.example.com`,
		`holdfast.yaml:2: cors.allowed_origins[5]: "HTTPS://app.example.com" is not an origin; write one such as https://app.example.com`,
		`holdfast.yaml:3: cors.allowed_headers[0]: "X Y" is not the name of an HTTP header`,
	}, problems(t, `cors:
  allowed_origins: ["*", app.example.com, "https://*.example.com", "https://app.example.com/", "null", "HTTPS://app.example.com"]
  allowed_headers: ["X Y"]
`, nil))
	for _, allowed := range []string{`["*"]`, `["https://app.example.com", "http://localhost:3000"]`, `[]`} {
		_, err := Load(Source{File: file(t, "cors: {allowed_origins: "+allowed+"}\n")})
		require.NoError(t, err)
	}
}

func TestLimitsHaveBounds(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"holdfast.yaml:2: limits.max_parts: is 0; write a value from 1 to 100000",
		"holdfast.yaml:3: limits.max_part: is 1; write a value from 1KiB to 1GiB",
		"holdfast.yaml:4: limits.per_principal.burst: needs limits.per_principal.rate",
		"holdfast.yaml:4: limits.per_principal.live_tasks: is 100001; write a value from 0 to 100000",
		"holdfast.yaml:8: agents[0].limits.queue: is -1; write a value from 0 to 100000",
	}, problems(t, `limits:
  max_parts: 0
  max_part: 1
  per_principal: {burst: 5, live_tasks: 100001}
agents:
  - name: a
    executor: {kind: demo}
    limits: {queue: -1, max_artifacts: 0}
`, nil))
}

// The paths of an agent with such a name would be those of something else.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default", "other", "agents", "tasks", "v1", "resume", "run", "notifications"} {
		require.Equal(t, []string{fmt.Sprintf("holdfast.yaml:2: agents[0].name: %q is reserved; choose another name", name)},
			problems(t, "agents:\n  - name: "+name+"\n    executor: {kind: demo}\n", nil))
	}
}

func TestPushNeedsAURLOfTheServer(t *testing.T) {
	t.Parallel()
	const agents = "database_url: host=db\nagents:\n  - name: a\n    executor: {kind: a2a, a2a: {card_url: http://agent, push: true}}\n"
	require.Equal(t, []string{
		"holdfast.yaml:5: agents[0].executor.a2a.push: needs the URL at which the agent reaches this server; set run_api.url or public_url",
	}, problems(t, "roles: [worker]\n"+agents, nil))
	for _, more := range []string{
		"roles: [worker]\nrun_api: {url: http://holdfast}\n", "roles: [worker]\npublic_url: http://holdfast\n", "roles: [push]\n", "",
	} {
		_, err := Load(Source{File: file(t, more+agents)})
		require.NoError(t, err, more)
	}
}

func TestInvalidYAML(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content string
		want    []string
	}{
		"syntax":             {"listen: [1\nlog: x", []string{"holdfast.yaml:2: did not find expected ',' or ']' (while parsing a flow sequence)"}},
		"tab":                {"log:\n\tlevel: info", []string{"holdfast.yaml:2: found character that cannot start any token (while scanning for the next token)"}},
		"two documents":      {"data_dir: a\n---\ndata_dir: b\n", []string{"holdfast.yaml:2: a second YAML document begins; write one document"}},
		"not a mapping":      {"- a\n", []string{"holdfast.yaml:1: is a list; write a section with keys"}},
		"merge key":          {"log: &l {level: info}\nsse:\n  <<: *l\n", []string{"holdfast.yaml:3: sse: merge keys (<<) are not supported; use an alias for a whole value"}},
		"an alias to itself": {"log: &l {level: *l}\n", []string{"holdfast.yaml:1: log.level: is a section with keys; write text"}},
		"no agents":          {"agents: []\n", []string{"holdfast.yaml:1: agents: must not be empty; remove the key to serve the demo agent"}},
		"a listener without a database": {"listen_database_url: host=db\n", []string{
			"holdfast.yaml:1: listen_database_url: needs database_url, because the embedded database has no pooler in front",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, problems(t, c.content, nil))
		})
	}
}

func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	_, err := Load(Source{File: "/does/not/exist.yaml"})
	require.ErrorIs(t, err, os.ErrNotExist)
	var mistakes *Error
	require.NotErrorAs(t, err, &mistakes)
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"0": 0, "4096": 4096, "4096B": 4096, "64KiB": 64 * KiB, "16MiB": 16 * MiB, "2 GiB": 2 * GiB,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseSize(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "MiB", "16MB", "-1", "1.5GiB", "9223372036854775807KiB", "99999999999999999999"} {
		_, err := ParseSize(text)
		require.Error(t, err, text)
	}
}

func TestBaseURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ public, bound, want string }{
		{"https://agents.example.com/a2a/", ":8080", "https://agents.example.com/a2a"},
		{"", "127.0.0.1:8080", "http://127.0.0.1:8080"},
		{"", ":8080", "http://127.0.0.1:8080"},
		{"", "0.0.0.0:80", "http://127.0.0.1:80"},
		{"", "[::]:8080", "http://[::1]:8080"},
	} {
		require.Equal(t, c.want, (&Config{PublicURL: c.public}).BaseURL(c.bound), fmt.Sprint(c))
	}
}

func FuzzLoad(f *testing.F) {
	mistakes, err := os.ReadFile("testdata/mistakes.yaml")
	require.NoError(f, err)
	f.Add(string(mistakes))
	f.Add("agents: [{name: a, executor: {kind: demo}}]")
	f.Add("log: &l {level: *l}")
	f.Fuzz(func(t *testing.T, content string) {
		c, err := Load(Source{File: file(t, content)})
		if (err == nil) == (c == nil) {
			t.Fatalf("Load returned %v and %v", c, err)
		}
	})
}
