package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/casetest"
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

// loaded is the configuration of a file without mistakes.
func loaded(t *testing.T, content string) *Config {
	t.Helper()
	c, err := Load(Source{File: file(t, content)})
	require.NoError(t, err, content)
	return c
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
			want.Push.AllowPrivate = source.File == ""
			require.Empty(t, cmp.Diff(want, c))
		})
	}
}

func TestAgentDefaults(t *testing.T) {
	t.Parallel()
	c := loaded(t, `
agents:
  - name: weather
    card: {version: 1.10, skills: [{id: forecast}]}
    executor: {kind: http, http: {url: "http://localhost:9000"}}
  - name: notes
    executor: {kind: command, command: {argv: [cat]}}
    limits: {concurrency: 3}
`)
	weather, notes := c.Agents[0], c.Agents[1]
	require.True(t, weather.Default, "without a mark the first agent is the default")
	require.False(t, notes.Default)
	require.Equal(t, "1.10", weather.Card.Version, "a version that looks like a number keeps its digits")
	require.Equal(t, 256, weather.Limits.Concurrency)
	require.Equal(t, 3, notes.Limits.Concurrency)
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
	_, err := Load(Source{Env: environment(map[string]string{"HOLDFAST_LOG_FORMAT": "xml"}), Flags: map[string]string{"listen": "nowhere"}})
	require.ErrorContains(t, err, "environment variable HOLDFAST_LOG_FORMAT: log.format: is \"xml\"")
	require.ErrorContains(t, err, "flag for listen: listen: \"nowhere\" is not an address")
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

func TestOrigins(t *testing.T) {
	t.Parallel()
	for _, allowed := range []string{`["*"]`, `["https://app.example.com", "http://localhost:3000"]`, `[]`} {
		loaded(t, "cors: {allowed_origins: "+allowed+"}\n")
	}
}

func TestPushNeedsAURLOfTheServer(t *testing.T) {
	t.Parallel()
	const agents = "database_url: host=db\nagents:\n  - name: a\n    executor: {kind: a2a, a2a: {card_url: http://agent, push: true}}\n"
	for _, more := range []string{
		"roles: [worker]\nrun_api: {url: http://holdfast}\n", "roles: [worker]\npublic_url: http://holdfast\n", "roles: [push]\n", "",
	} {
		loaded(t, more+agents)
	}
}

// testdata/problems.txt has contents of a file, and what their authors read.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Read(t, "testdata/problems.txt") {
		require.Equal(t, c.Want, strings.Join(problems(t, c.In, nil), "\n"), "line %d: %s", c.Line, c.In)
	}
	require.Equal(t, []string{"holdfast.yaml:2: found character that cannot start any token (while scanning for the next token)"},
		problems(t, "log:\n\tlevel: info", nil))
}

func TestChangesOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("log: {level: info}\nagents:\n  - {name: a, executor: {kind: demo}}\n  - {name: b, executor: {kind: demo}}\n")
	_, changes, err := (&Source{File: file}).Watch()
	require.NoError(t, err)
	for text, want := range map[string][]string{
		"# moved\nagents:\n  - {name: b, executor: {kind: demo}}\n  - {executor: {kind: demo}, name: a}\nlog:\n  level: info\n":                  {"agents"},
		"listen: 127.0.0.1:1\nagents:\n  - {name: a, executor: {kind: demo}, limits: {concurrency: 2}}\n  - {name: c, executor: {kind: demo}}\n": {"agents[a].limits.concurrency", "agents[b]", "agents[c]", "listen", "log.level"},
	} {
		write(text)
		got, err := changes()
		require.NoError(t, err)
		require.Equal(t, want, got.Keys)
		require.Equal(t, len(want) == 1, got.OnlyAgents(), "the first agent is the default one")
	}
	write("agents: [{nme: a}]")
	_, err = changes()
	require.ErrorContains(t, err, "nme")
	write("agents: &a [*a]")
	_, _, err = (&Source{File: file}).Watch()
	require.Error(t, err)
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

// documented is the default and variable of a key in docs/configuration.md.
type documented struct{ Default, Variable string }

// inWords are the keys whose default depends on other keys, or which are required: the table describes them in words.
var inWords = map[string]bool{
	"drain_delay": true, "push.https_only": true, "push.validation_challenge": true, "agents[].name": true, "agents[].card.skills": true,
	"agents[].executor.kind": true, "agents[].executor.http.url": true, "agents[].executor.a2a.card_url": true,
	"auth.schemes[].basic.users_file": true, "auth.schemes[].jwt.issuer": true, "auth.schemes[].jwt.audience": true,
	"admin.schemes":                     true,
	"agents[].executor.openai.base_url": true, "agents[].executor.openai.model": true,
	"agents[].executor.command.argv": true, "agents[].limits.concurrency": true,
}

// A row describes a key, or a section or list with all its members, which it names.
func TestDocumentationListsEveryKey(t *testing.T) {
	t.Parallel()
	inCode := map[string]documented{}
	secrets := collect(inCode, "", reflect.ValueOf(*Default()))

	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	inDocs, meanings := map[string]documented{}, map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| ([^|]*)\\| ([^|]+?)(?: \\(`(HOLDFAST_[A-Z_]+)`\\))? \\|$")
	_, tables, _ := strings.Cut(string(page), "\n## Server\n")
	for _, m := range row.FindAllStringSubmatch(tables, -1) {
		d := documented{Default: strings.TrimSpace(m[2]), Variable: m[4]}
		if inWords[m[1]] {
			require.NotEmpty(t, d.Default, m[1])
			d.Default = ""
		}
		d.Default = strings.Trim(d.Default, "`")
		_, twice := inDocs[m[1]]
		require.False(t, twice, "%s is documented twice", m[1])
		inDocs[m[1]], meanings[m[1]] = d, m[3]
	}
	for key, d := range inCode {
		of, member := key, ""
		for meanings[of] == "" && of != "" {
			of = of[:max(strings.LastIndex(of, "."), 0)]
			of, member = strings.TrimSuffix(of, "[]"), strings.TrimPrefix(key[len(of):], "[]")
		}
		if member == "" {
			continue
		}
		for _, text := range []string{strings.TrimPrefix(member, "."), d.Default, d.Variable} {
			if text != "" && text != "false" {
				require.Contains(t, meanings[of], "`"+text+"`", "the row %s, about %s", of, key)
			}
		}
		delete(inCode, key)
		if _, alone := inCode[of]; !alone {
			delete(inDocs, of)
		}
	}
	require.Empty(t, cmp.Diff(inCode, inDocs), "-code +docs/configuration.md")

	_, section, _ := strings.Cut(string(page), "\n## Secrets\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| (`[a-z][^|]*)\\|").FindAllStringSubmatch(section, -1) {
		for _, key := range strings.Split(m[1], ",") {
			listed = append(listed, strings.Trim(key, " `"))
		}
	}
	require.ElementsMatch(t, secrets, listed, "the keys of the section Secrets")
}

// collect lists the keys of a section as the page names them, with their defaults.
func collect(keys map[string]documented, path string, section reflect.Value) (secrets []string) {
	for i := range section.NumField() {
		field, v := section.Type().Field(i), section.Field(i)
		key := join(path, field.Tag.Get("yaml"))
		if field.Type.Kind() == reflect.Struct {
			secrets = append(secrets, collect(keys, key, v)...)
			continue
		}
		if field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct {
			element := reflect.New(field.Type.Elem())
			fill(element.Elem())
			secrets = append(secrets, collect(keys, key+"[]", element.Elem())...)
			if key == "agents" {
				continue // a paragraph of the page describes the list itself
			}
		}
		d := documented{Variable: field.Tag.Get("env")}
		if !inWords[key] {
			d.Default = text(v)
		}
		keys[key] = d
		if secretOf(path, field, v) != nil {
			secrets = append(secrets, key)
		}
	}
	return secrets
}

func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return show(x)
	case bool:
		return fmt.Sprint(x)
	}
	if v.Kind() == reflect.Slice {
		items := make([]string, v.Len())
		for i := range items {
			items[i] = v.Index(i).String()
		}
		return strings.Join(items, ", ")
	}
	if v.IsZero() {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// Settings has every key of the documents, with its origin, and shows no secret.
func TestSettings(t *testing.T) {
	t.Parallel()
	source := Source{
		File: file(t, `log: {level: debug}
database_url: postgres://app:s3cret@db/x
agents:
  - name: a
    executor:
      kind: openai
      openai:
        base_url: https://me:s3cret@api.test/v1
        model: ${MODEL}
        api_key: s3cret
        headers: {X-Key: s3cret}
        parameters: {user: "${MODEL}"}
        tools: [{name: t, argv: [run, "${MODEL}"]}]
`),
		Env:   environment(map[string]string{"HOLDFAST_LOG_REQUESTS": "all", "MODEL": "s3cret"}),
		Flags: map[string]string{"listen": "127.0.0.1:5"},
	}
	all, err := Settings(source)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(all), "s3cret")
	got := map[string]string{}
	for _, s := range all {
		got[s.Key] = s.Value + " from " + strings.ReplaceAll(s.From, source.File, "holdfast.yaml")
	}
	const model = "agents[0].executor.openai."
	for key, want := range map[string]string{
		"listen": "127.0.0.1:5 from flag for listen", "grpc_listen": "127.0.0.1:6 from default", "log.level": "debug from holdfast.yaml:1",
		"log.requests": "all from environment variable HOLDFAST_LOG_REQUESTS", "database_url": "*** from holdfast.yaml:2", "worker.lease_ttl": "10s from default",
		"agents[0].limits.concurrency": "256 from default", model + "base_url": "https://***@api.test/v1 from holdfast.yaml:8", model + "model": "${MODEL} from holdfast.yaml:9",
		model + "api_key": "*** from holdfast.yaml:10", model + "headers.X-Key": "*** from holdfast.yaml:11", model + "parameters.user": "${MODEL} from holdfast.yaml:12",
		model + "tools[0].argv": "*** from holdfast.yaml:13",
	} {
		require.Equal(t, want, got[key], key)
	}
	require.NotContains(t, got, "agents[0].executor.http.url", "the section of another kind")
	known := map[string]documented{}
	collect(known, "", reflect.ValueOf(*Default()))
	for key := range known {
		if !strings.Contains(key, "[]") {
			require.Contains(t, got, key)
		}
	}
}

func TestExampleConfigurationLoads(t *testing.T) {
	t.Parallel()
	c, err := Load(Source{File: "../../examples/holdfast.yaml", Env: environment(map[string]string{"WEATHER_TOKEN": "secret"})})
	require.NoError(t, err)
	require.Len(t, c.Agents, 3)
	require.Equal(t, "demo", c.DefaultAgent().Name)
	require.Equal(t, "Bearer secret", c.Agents[1].Executor.HTTP.Headers["Authorization"])
	require.Equal(t, []string{"python3", "examples/python/command_agent.py"}, c.Agents[2].Executor.Command.Argv)
}
