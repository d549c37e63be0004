package openai_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/openai"
	"github.com/holdfast-a2a/holdfast/internal/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/secret"
)

// An API that repeats all the secrets that it gets, wherever it can, has them in no error.
func TestSecretsAreInNoError(t *testing.T) {
	t.Parallel()
	const header, query, password = "header-s3cret", "query-s3cret", "password-s3cret"
	all := "key " + modeltest.Key + " " + header + " " + query + " " + password
	for name, handler := range map[string]http.HandlerFunc{
		"refused":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, all, http.StatusBadRequest) },
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, all, http.StatusUnauthorized) },
		"redirected": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/?"+all, http.StatusTemporaryRedirect)
		},
		"half JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"error": "`+all)
		},
		"half JSON in a stream": func(w http.ResponseWriter, _ *http.Request) { modeltest.Write(w, `{"error": "`+all) },
		"an odd content type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", all)
			w.WriteHeader(http.StatusOK)
		},
		"an error in a stream": func(w http.ResponseWriter, _ *http.Request) {
			modeltest.Write(w, `{"type":"error","message":"`+all+`","error":{"message":"`+all+`"}}`)
		},
		"a cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for _, responses := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := httptest.NewServer(handler)
				t.Cleanup(server.Close)
				agent, err := openai.New(openai.Options{
					BaseURL: "http://user:" + password + "@" + server.Listener.Addr().String() + "/v1?key=" + query, Model: "x",
					APIKey: secret.Text(modeltest.Key), Headers: map[string]string{"X-Key": header}, Responses: responses, Background: true,
				})
				require.NoError(t, err)
				_, err = run(t, agent, "hello")
				require.Error(t, err)
				for _, secret := range []string{modeltest.Key, header, query, password} {
					require.NotContains(t, err.Error(), secret)
				}
			})
		}
	}
}

// A server of tools that repeats its credentials gives them neither to the model nor to the log.
func TestSecretsOfToolsStayThere(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-of-tools"
	tools := mcptest.New(t)
	handler := mcptest.Handler(tools.Dir)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	f := newFake(t, calls("", "t__look", secret, "t__fail", secret), says("Well."))
	_, err := run(t, f.agent(t, func(o *openai.Options) {
		o.Tools = []openai.ToolServer{{Name: "t", URL: server.URL + "?key=" + secret, Headers: map[string]string{"Authorization": "Bearer " + secret}}}
	}), "do it")
	require.NoError(t, err)
	require.Equal(t, []string{"done: [redacted]", "no [redacted]"}, results(f))

	server.Close()
	_, err = run(t, f.agent(t, func(o *openai.Options) {
		o.Tools = []openai.ToolServer{{Name: "t", URL: server.URL + "?key=" + secret}}
	}), "do it")
	require.Error(t, err)
	require.NotContains(t, err.Error(), secret)
}

// Servers of tools that are silent, babble, or hang at the end, cost a bounded time and a bounded memory.
func TestHostileServersOfTools(t *testing.T) {
	t.Parallel()
	away := func(t *testing.T, s openai.ToolServer) {
		t.Helper()
		f := newFake(t, says("Hi"))
		_, err := run(t, f.agent(t, func(o *openai.Options) {
			o.Tools, o.ToolTimeout = []openai.ToolServer{s}, 200*time.Millisecond
		}), "do it")
		_, ok := errors.AsType[*executor.Unavailable](err)
		require.True(t, ok, "%v", err)
		require.Empty(t, f.Calls())
	}
	t.Run("a silent program", func(t *testing.T) {
		t.Parallel()
		away(t, openai.ToolServer{Name: "t", Argv: []string{"sleep", "600"}})
	})
	t.Run("an endless line", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, says("Hi"))
		_, err := run(t, f.agent(t, func(o *openai.Options) {
			o.Tools = []openai.ToolServer{{Name: "t", Argv: []string{"sh", "-c", `printf '"'; exec tr '\0' x </dev/zero`}}}
		}), "do it")
		_, ok := errors.AsType[*executor.Unavailable](err)
		require.True(t, ok, "%v", err)
	})
	t.Run("a silent address", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client is gone
			<-r.Context().Done()
		}))
		t.Cleanup(server.Close)
		away(t, openai.ToolServer{Name: "t", URL: server.URL})
	})
	t.Run("an address that hangs at the end", func(t *testing.T) {
		t.Parallel()
		tools := mcptest.New(t)
		handler := mcptest.Handler(tools.Dir)
		gone := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				handler.ServeHTTP(httptest.NewRecorder(), r)
				<-gone
				return
			}
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		t.Cleanup(func() { close(gone) })
		f := newFake(t, calls("", "t__look", "a"), says("Done."))
		agent := f.agent(t, func(o *openai.Options) {
			o.Tools, o.ToolTimeout = []openai.ToolServer{{Name: "t", URL: server.URL}}, 100*time.Millisecond
		})
		openai.BoundListing(agent, time.Hour)
		openai.BoundCalls(agent, time.Hour)
		openai.WrapTools(agent, func(limited http.RoundTripper) http.RoundTripper { return onlyAtTheEnd{limited} })
		out := ran(t, agent, "do it")
		require.Equal(t, "Done.", out.Text(t))
	})
}

// onlyAtTheEnd has the limits of a transport when a session ends.
type onlyAtTheEnd struct{ http.RoundTripper }

func (r onlyAtTheEnd) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodDelete {
		return r.RoundTripper.RoundTrip(request)
	}
	return http.DefaultTransport.RoundTrip(request)
}
