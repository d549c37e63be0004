package registry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayName lists texts outside the dialects that look like a version, with the reason why they are allowed.
var mayName = map[string]string{
	"internal/config/config.go 1.0.0":  "a value of protocol.status_table",
	"internal/config/config.go 1.0.1":  "a value of protocol.status_table",
	"internal/config/default.go 1.0.0": "the version of an agent",
	"internal/cli/torture.go 0.3":      "a version whose servers the torture test can test",
	"internal/cli/torture.go 1.0":      "a version whose servers the torture test can test",
	"internal/torture/peer.go 1.0":     "the torture test tests clauses of this version",
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
