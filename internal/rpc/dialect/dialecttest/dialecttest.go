// Package dialecttest is shared by the tests of all codecs. It has the published examples and
// schemas, golden files, and tasks and events that show every feature.
package dialecttest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// Golden compares a document with testdata/<name>.json of the package under test. The file is
// indented for readers; the document itself must be one line.
func Golden(t *testing.T, name string, document []byte) {
	t.Helper()
	require.NotContains(t, string(document), "\n", "a document is one line")
	got := jsontext.Value(bytes.Clone(document))
	require.NoError(t, got.Indent(jsontext.WithIndent("  ")), "%s", document)
	got = append(got, '\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s changed (rewrite with -update and read the difference), -want +got:\n%s", path, diff)
	}
}

// repeated is a character that a file of cases repeats, such as <257*x>.
var repeated = regexp.MustCompile(`<(\d+)\*(.)>`)

// Cases reads testdata/<name>.txt of the package under test. A case has a number of lines, the first is its name after "# ".
// An empty line separates cases; lines that begin with "## " are comments.
func Cases(t *testing.T, name string, lines int) (cases [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	require.NoError(t, err)
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		var c []string
		for line := range strings.SplitSeq(block, "\n") {
			if strings.HasPrefix(line, "## ") {
				continue
			}
			c = append(c, repeated.ReplaceAllStringFunc(line, func(r string) string {
				parts := repeated.FindStringSubmatch(r)
				n, err := strconv.Atoi(parts[1])
				require.NoError(t, err)
				return strings.Repeat(parts[2], n)
			}))
		}
		require.Len(t, c, lines, block)
		name, named := strings.CutPrefix(c[0], "# ")
		require.True(t, named, block)
		c[0] = name
		cases = append(cases, c)
	}
	return cases
}

// Schemas validates documents against one published schema.
type Schemas struct {
	compiler *jsonschema.Compiler
	url      string
	defs     string
}

// NewSchemas loads the schema of a published version, such as "0.2.5".
func NewSchemas(t *testing.T, version string) *Schemas {
	t.Helper()
	file := "a2a-v" + version + ".schema.json"
	raw, err := os.Open(filepath.Join(repository(), "internal/rpc/dialect/testdata/schemas", file))
	require.NoError(t, err)
	defer func() { require.NoError(t, raw.Close()) }()
	schema, err := jsonschema.UnmarshalJSON(raw)
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource(file, schema))
	defs := "definitions"
	if _, ok := schema.(map[string]any)["$defs"]; ok {
		defs = "$defs"
	}
	return &Schemas{compiler: compiler, url: file, defs: defs}
}

// Check validates a document against one definition, such as "Task".
func (s *Schemas) Check(t *testing.T, definition string, document []byte) {
	t.Helper()
	schema, err := s.compiler.Compile(s.url + "#/" + s.defs + "/" + definition)
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(value), "%s of %s: %s", definition, s.url, document)
}

// Example is a request as a published document shows it.
type Example struct {
	Name   string // document and file
	Method string
	Params []byte
}

// Examples returns the requests of the published documents whose name has a prefix, such as "v0.1".
func Examples(t testing.TB, documents string) []Example {
	t.Helper()
	root := filepath.Join(repository(), "integration/protocol/testdata/published")
	switch {
	case strings.HasPrefix(documents, "v1"):
		root = filepath.Join(repository(), "internal/rpc/dialect/v10/testdata/published")
	case documents == "v0.3.0":
		root = filepath.Join(repository(), "internal/rpc/dialect/v03proto/testdata/published")
	}
	files, err := filepath.Glob(filepath.Join(root, documents+"*", "*.request.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var examples []Example
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var request struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		require.NoError(t, json.Unmarshal(raw, &request), file)
		name, err := filepath.Rel(root, strings.TrimSuffix(file, ".request.json"))
		require.NoError(t, err)
		examples = append(examples, Example{Name: name, Method: request.Method, Params: request.Params})
	}
	return examples
}

// repository returns the root of the source tree.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../..")
}
