package http_test

import (
	"context"
	"io"
	"iter"
	nethttp "net/http"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor/http"
)

type noAgent struct{}

func (noAgent) Execute(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

func (noAgent) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

func TestRecognizesOtherKinds(t *testing.T) {
	t.Parallel()
	const a2aKind, openAI = "; the endpoint speaks A2A: use executor.kind a2a, with a2a.card_url",
		"; the endpoint speaks the API of OpenAI: use executor.kind openai, with openai.base_url and openai.model"
	says := func(code int, body string) nethttp.Handler {
		return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
	}
	for name, c := range map[string]struct {
		server nethttp.Handler
		want   string // the end of the error
	}{
		"the Go SDK":           {a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(noAgent{})), a2aKind},
		"JSON-RPC with 200":    {says(200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`), a2aKind},
		"JSON-RPC with 400":    {says(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}`), a2aKind},
		"A2A over HTTP+JSON":   {says(404, `{"error":{"code":404,"status":"NOT_FOUND","message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"METHOD_NOT_FOUND","domain":"a2a-protocol.org"}]}}`), a2aKind},
		"OpenAI":               {says(401, `{"error":{"message":"You didn't provide an API key.","type":"invalid_request_error","param":null,"code":null}}`), openAI},
		"a model that answers": {says(200, `{"id":"c","object":"chat.completion","choices":[]}`), openAI},
		"Responses":            {says(200, `{"id":"r","object":"response","output":[]}`), openAI},
		"an agent's error":     {says(400, `{"error":"no"}`), `{"error":"no"}`},
		"another error":        {says(400, `{"error":{"message":"no"}}`), `{"error":{"message":"no"}}`},
		"a crash":              {says(500, `{"error":{"message":"no"}}`), `{"error":{"message":"no"}}`},
		"a bad answer":         {says(200, `{"answer":42}`), "needs one of type, events, text"},
		"a bad event":          {says(200, `{"type":"dance","jsonrpc":"2.0"}`), "type: must be one of"},
		"no JSON":              {says(200, `hello`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := execute(t, agentServer(t, http.Options{}, c.server.ServeHTTP))
			require.ErrorContains(t, err, c.want)
			if c.want != a2aKind && c.want != openAI {
				require.NotContains(t, err.Error(), "executor.kind")
			}
		})
	}
}
