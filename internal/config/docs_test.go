package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// documented is the default and variable of a key in docs/configuration.md.
type documented struct{ Default, Variable string }

// inWords are the keys whose default depends on other keys, or which are required: the table describes them in words.
var inWords = map[string]bool{
	"drain_delay": true, "push.https_only": true, "push.validation_challenge": true, "agents[].name": true, "agents[].card.name": true, "agents[].card.description": true, "agents[].card.skills": true,
	"agents[].card.extensions[].uri": true, "agents[].card.skills[].id": true, "agents[].card.skills[].name": true, "agents[].card.skills[].description": true,
	"agents[].card.skills[].tags": true, "agents[].executor.kind": true, "agents[].executor.http.url": true, "agents[].executor.a2a.card_url": true,
	"auth.schemes[].name": true, "auth.schemes[].kind": true, "auth.schemes[].basic.users[].name": true,
	"auth.schemes[].basic.users[].password_hash": true, "auth.schemes[].jwt.issuer": true, "auth.schemes[].jwt.audience": true,
	"auth.schemes[].jwt.scopes_claim": true, "agents[].auth.schemes": true, "admin.schemes": true,
	"agents[].executor.openai.base_url": true, "agents[].executor.openai.model": true, "agents[].executor.openai.tools[].name": true,
	"agents[].executor.openai.agents[].name": true, "agents[].executor.openai.agents[].description": true,
	"agents[].executor.command.argv": true, "agents[].executor.command.dir": true, "agents[].limits.concurrency": true,
}

func TestDocumentationListsEveryKey(t *testing.T) {
	t.Parallel()
	inCode := map[string]documented{}
	secrets := collect(inCode, "", reflect.ValueOf(*Default()))

	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	inDocs := map[string]documented{}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| ([^|]*)\\| ([^|]*)\\| .+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		d := documented{Default: strings.TrimSpace(m[2]), Variable: strings.Trim(m[3], " `")}
		if inWords[m[1]] {
			require.NotEmpty(t, d.Default, m[1])
			d.Default = ""
		}
		d.Default = strings.Trim(d.Default, "`")
		_, twice := inDocs[m[1]]
		require.False(t, twice, "%s is documented twice", m[1])
		inDocs[m[1]] = d
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
			if d, ok := element.Interface().(interface{ setDefaults() }); ok {
				d.setDefaults()
			}
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

func TestExampleConfigurationLoads(t *testing.T) {
	t.Parallel()
	c, err := Load(Source{
		File: "../../examples/holdfast.yaml",
		Env:  environment(map[string]string{"WEATHER_TOKEN": "secret"}),
	})
	require.NoError(t, err)
	require.Len(t, c.Agents, 3)
	require.Equal(t, "demo", c.DefaultAgent().Name)
	require.Equal(t, "Bearer secret", c.Agents[1].Executor.HTTP.Headers["Authorization"])
	require.Equal(t, []string{"python3", "examples/python/command_agent.py"}, c.Agents[2].Executor.Command.Argv)
}
