package cli

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/logs.md has the fields of every line that the code logs, and no others.
func TestFieldsOfLogsAreDocumented(t *testing.T) {
	t.Parallel()
	found := map[string]string{}
	for _, dir := range []string{"internal", "cmd", "agent"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test/") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, key := range loggedKeys(n) {
					name, err := strconv.Unquote(key.Value)
					require.NoError(t, err)
					found[name] = files.Position(key.Pos()).String()
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, len(found), 50)
	page, err := os.ReadFile("../../docs/logs.md")
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllSubmatch(page, -1) {
		for name := range bytes.SplitSeq(row[1], []byte(", ")) {
			documented[strings.Trim(string(name), "`")] = true
		}
	}
	for name, at := range found {
		require.Contains(t, documented, name, "%s logs it", at)
	}
	for name := range documented {
		require.Contains(t, found, name, "docs/logs.md has it, and no line")
	}
}

// loggedKeys returns the keys of a node that logs, or that makes fields for a log.
func loggedKeys(n ast.Node) []*ast.BasicLit {
	if list, ok := n.(*ast.CompositeLit); ok {
		if a, ok := list.Type.(*ast.ArrayType); ok && types.ExprString(a.Elt) == "any" {
			return pairs(list.Elts)
		}
		return nil
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	name := types.ExprString(call.Fun)
	on, method, _ := strings.Cut(name, ".")
	if i := strings.LastIndex(name, "."); i >= 0 {
		on, method = name[:i], name[i+1:]
	}
	skip := -1
	switch {
	case on == "slog" && slices.Contains([]string{"String", "Int", "Int64", "Any", "Duration", "Bool"}, method):
		return pairs(call.Args[:1])
	case strings.HasSuffix(strings.ToLower(on), "log") || strings.Contains(on, "log.With("):
		skip = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3, "With": 0}[method]
		if _, logs := map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true, "Log": true, "With": true}[method]; !logs {
			return nil
		}
	case method == "Broken", method == "broken":
		skip = 1
	case method == "LogFault":
		skip = 4
	}
	if skip < 0 || skip > len(call.Args) {
		return nil
	}
	return pairs(call.Args[skip:])
}

// pairs returns the keys of a list of keys and values.
func pairs(list []ast.Expr) (keys []*ast.BasicLit) {
	for i := 0; i < len(list); i++ {
		switch x := list[i].(type) {
		case *ast.BasicLit:
			if x.Kind == token.STRING {
				keys = append(keys, x)
			}
			i++ // its value
		case *ast.CallExpr:
			if types.ExprString(x.Fun) == "append" {
				keys = append(keys, pairs(x.Args[1:])...)
			}
		}
	}
	return keys
}
