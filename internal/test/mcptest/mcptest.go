// Package mcptest is an MCP server for tests, made with the official SDK. It is the test binary again, in a process of its
// own, or a handler of HTTP. It writes each call into a journal, which survives it.
package mcptest

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// Variable names the folder of the journal in the environment of a server's process.
const Variable = "HOLDFAST_TEST_TOOLS"

// Main serves tools on stdin and stdout if this process is to be a server, and exits. Call it first in TestMain.
func Main() {
	dir := os.Getenv(Variable)
	if dir == "" {
		return
	}
	if err := server(dir).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Handler serves the tools over streamable HTTP.
func Handler(dir string) http.Handler {
	s := server(dir)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

// WithoutTools serves no tools, only prompts.
func WithoutTools() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "prompts", Version: "1"}, nil)
	s.AddPrompt(&mcp.Prompt{Name: "hello"}, nil)
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found"}
			}
			return next(ctx, method, r)
		}
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

// Tools is a folder with the journal of a server.
type Tools struct {
	t   *testing.T
	Dir string
}

// New makes an empty journal.
func New(t *testing.T) *Tools {
	t.Helper()
	return &Tools{t, t.TempDir()}
}

// Argv starts a server with the environment that Env has.
func (*Tools) Argv() []string { return []string{os.Args[0]} }

// Env is the environment of the server's process.
func (s *Tools) Env() map[string]string { return map[string]string{Variable: s.Dir} }

// Block lets calls of the tools pay and look hang from now on, after they are in the journal.
func (s *Tools) Block() {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.Dir, "block"), nil, 0o600))
}

// Release lets them return.
func (s *Tools) Release() { require.NoError(s.t, os.Remove(filepath.Join(s.Dir, "block"))) }

// Calls are the lines of the journal: name, argument and idempotency key.
func (s *Tools) Calls() []string {
	raw, err := os.ReadFile(filepath.Join(s.Dir, "journal"))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(s.t, err)
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")[:strings.Count(string(raw), "\n")]
}

type argument struct {
	Of string `json:"of" jsonschema:"what the call is about"`
}

func server(dir string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	add := func(name string, about *mcp.ToolAnnotations, do func(context.Context, string) (string, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "For tests: " + name, Annotations: about},
			func(ctx context.Context, r *mcp.CallToolRequest, in argument) (*mcp.CallToolResult, any, error) {
				key, _ := r.Params.Meta["holdfast/idempotencyKey"].(string)
				if err := journal(dir, name+" "+in.Of+" "+key); err != nil {
					return nil, nil, err
				}
				text, err := do(ctx, in.Of)
				if err != nil {
					return nil, nil, err
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
			})
	}
	s.AddTool(&mcp.Tool{Name: "raw", Description: "For tests: any arguments", InputSchema: map[string]any{"type": "object"}},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			key, _ := r.Params.Meta["holdfast/idempotencyKey"].(string)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, journal(dir, "raw "+string(r.Params.Arguments)+" "+key)
		})
	blocks := func(ctx context.Context, of string) (string, error) {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "block")); errors.Is(err, fs.ErrNotExist) {
				return "done: " + of, nil
			}
			time.Sleep(5 * time.Millisecond)
		}
		return "", ctx.Err()
	}
	add("look", &mcp.ToolAnnotations{ReadOnlyHint: true}, blocks)
	add("pay", nil, blocks)
	add("fail", nil, func(_ context.Context, of string) (string, error) { return "", errors.New("no " + of) })
	add("crash", nil, func(context.Context, string) (string, error) { os.Exit(3); return "", nil })
	add("long", nil, func(context.Context, string) (string, error) { return strings.Repeat("x", 1<<20), nil })
	add("environment", nil, func(context.Context, string) (string, error) { return strings.Join(os.Environ(), "\n"), nil })
	return s
}

// journal appends a line with one write, so that a kill leaves whole lines.
func journal(dir, line string) error {
	f, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // written with one write
	_, err = f.WriteString(line + "\n")
	return err
}
