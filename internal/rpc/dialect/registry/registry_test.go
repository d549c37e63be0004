package registry_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestCodecsAreAtTheirIndex(t *testing.T) {
	t.Parallel()
	for i, c := range registry.All() {
		require.EqualValues(t, i, c.Traits().ID)
		require.Equal(t, c, registry.ByVersion(c.Traits().Version))
	}
	require.Nil(t, registry.ByVersion("7.0"))
}

// testdata/pick.txt has the cases.
func TestPick(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/pick.txt")
	require.NoError(t, err)
	cases := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		require.Len(t, f, 5, line)
		cases++
		method, header, pin := said(f[0]), said(f[1]), said(f[2])
		for strict, want := range map[bool]string{false: f[3], true: f[4]} {
			choice, err := registry.Pick(method, header, pin, strict)
			got := ""
			switch {
			case errors.Is(err, registry.ErrMethod):
				got = "method"
			case err != nil:
				require.ErrorIs(t, err, task.Version, line)
				require.NotNil(t, choice.Codec, "the dialect of the error")
				got = "version"
			case choice.Ambiguous:
				require.Equal(t, "0.3", choice.Codec.Traits().Version, line)
				got = "any"
			default:
				got = choice.Codec.Traits().Version
			}
			require.Equal(t, want, got, "%s, strict %v", line, strict)
		}
	}
	require.Greater(t, cases, 40)
}

func said(field string) string {
	if field == "-" {
		return ""
	}
	return strings.ReplaceAll(field, "_", " ")
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, header string
		lenient, strict bool
	}{
		{"1.0", "1.0", true, true},
		{"1.0", "1.0.1", true, true},
		{"1.0", "", true, false},
		{"1.0", "0.3", true, false},
		{"1.0", "99.0", false, false},
		{"0.3", "", true, true},
		{"0.3", "0.2.6", true, true},
		{"0.3", "0.3.0", true, true},
		{"0.3", "1.0", true, false},
		{"0.3", "latest", false, false},
	} {
		for strict, want := range map[bool]bool{false: tt.lenient, true: tt.strict} {
			err := registry.Admit(registry.ByVersion(tt.version), tt.header, "path", strict)
			if want {
				require.NoError(t, err, "%+v", tt)
			} else {
				require.ErrorIs(t, err, task.Version, "%+v", tt)
			}
		}
	}
}

// mayName lists texts outside the dialects that look like a version, with the reason why they are allowed.
var mayName = map[string]string{
	"agent/devserver/devserver.go 1.0": "the version that a client of tests speaks",
	"internal/config/config.go 1.0.0":  "a value of protocol.status_table",
	"internal/config/config.go 1.0.1":  "a value of protocol.status_table",
	"internal/config/default.go 1.0.0": "the version of an agent",
	"cmd/torture/main.go 0.3":          "a version whose servers the torture test can test",
	"cmd/torture/main.go 1.0":          "a version whose servers the torture test can test",
	"cmd/torture/checks/peer.go 1.0":   "the torture test tests clauses of this version",
}

// Code that depends on a version asks the codec (dialect.Traits). Only dialects name versions.
func TestOnlyDialectsNameVersions(t *testing.T) {
	t.Parallel()
	const root = "../../../.."
	version := regexp.MustCompile(`^v?(0\.[1-9]|1\.[0-9])(\.[0-9]+)?$`)
	files := 0
	for _, dir := range []string{"agent", "cmd", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, path)
			name = filepath.ToSlash(name)
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (name == "internal/rpc/dialect" || strings.HasSuffix(name, "test")):
				return filepath.SkipDir
			case entry.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
				return nil
			}
			files++
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && version.MatchString(text) {
						require.NotEmpty(t, mayName[name+" "+text], "%s names %q: let the codec answer what depends on it", name, text)
					}
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok && of.Name == "dialect" {
						require.NotRegexp(t, `^V[0-9]`, n.Sel.Name, "%s: let the codec answer what depends on it", name)
					}
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, files, 100)
}
