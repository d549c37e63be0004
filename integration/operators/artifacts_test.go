package operators

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// file reads a part as a file.
func (o *operator) file(path string) (header http.Header, body string) {
	o.t.Helper()
	res, err := o.begin(waittest.Context(o.t), http.MethodGet, path, "")
	require.NoError(o.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(o.t, err)
	require.Equal(o.t, http.StatusOK, res.StatusCode, string(raw))
	return res.Header, string(raw)
}

// Artifacts are the fold of their chunks, as clients read them, and their parts are files that no browser runs.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	op := as(t, r, "")

	chunked := send(r, "", "chunks=1200 size=10")
	list := op.get("/tasks/" + chunked + "/artifacts").list("artifacts")
	require.Len(t, list, 1)
	id := list[0]["id"].(string)
	at := "/tasks/" + chunked + "/artifacts/" + url.PathEscape(id)
	detail := op.get(at)
	parts := detail.list("parts")
	require.Len(t, parts, 1, "appended text is one part")
	require.Equal(t, json.Number("1200"), list[0]["chunks"])
	want := clustertest.One[string](db, `SELECT string_agg(p ->> 'text', '' ORDER BY e.seq) FROM holdfast.v_events e, json_array_elements(e.payload -> 'parts') p
		WHERE e.task = $1 AND e.kind = 'artifact'`, chunked)
	require.Greater(t, len(want), 12000)
	require.Equal(t, json.Number(strconv.Itoa(len(want))), parts[0]["bytes"])
	require.Equal(t, want, parts[0]["text"])
	header, body := op.file(at + "/parts/0")
	require.Equal(t, want, body)
	require.Equal(t, "text/plain; charset=utf-8", header.Get("Content-Type"))
	require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
	require.Equal(t, "default-src 'none'; sandbox", header.Get("Content-Security-Policy"))
	for _, none := range []string{at + "/parts/1", "/tasks/" + chunked + "/artifacts/none", "/tasks/" + chunked + "/artifacts/none/parts/0"} {
		require.Equal(t, http.StatusNotFound, op.do("GET", none, "").Status, none)
	}

	// A large text is cut in the preview, and whole as a file.
	large := send(r, "", "chunks=200 size=100000")
	at = "/tasks/" + large + "/artifacts/" + url.PathEscape(op.get("/tasks/" + large + "/artifacts").list("artifacts")[0]["id"].(string))
	detail = op.get(at)
	require.Equal(t, true, detail.read()["partial"])
	require.Equal(t, true, detail.list("parts")[0]["cut"])
	require.Less(t, len(detail.Body), 1<<20)
	_, body = op.file(at + "/parts/0")
	require.Len(t, body, 20_000_000)

	// The digits and the order of data are those of the agent.
	data := send(r, "", "data")
	at = "/tasks/" + data + "/artifacts/" + op.get("/tasks/" + data + "/artifacts").list("artifacts")[0]["id"].(string)
	stored := clustertest.One[string](db, "SELECT (payload -> 'parts' -> 0 -> 'data')::text FROM holdfast.v_events WHERE task = $1 AND kind = 'artifact'", data)
	require.Contains(t, string(op.get(at).Body), stored)
	header, body = op.file(at + "/parts/0")
	require.Equal(t, stored, body)
	require.Equal(t, "application/json", header.Get("Content-Type"))

	// The demo agent echoes parts. Their media types and names must not make a browser run them.
	for _, x := range []struct{ media, name, wantMedia, wantName string }{
		{"image/png", "../../etc/cat.png", "image/png", "cat.png"},
		{"text/html", "x.html", "application/octet-stream", "x.html"},
		{"image/svg+xml; charset=x", "a\u202egnp.svg", "image/svg+xml", "a_gnp.svg"},
		{"application/pdf", "", "application/pdf", "echo"},
		{"not a type\n", "a\r\nSet-Cookie: x", "application/octet-stream", "a__Set-Cookie_ x"},
	} {
		raw, _ := json.Marshal(map[string]any{"kind": "file", "file": map[string]any{
			"bytes": base64.StdEncoding.EncodeToString([]byte("<script>1</script>")), "mimeType": x.media, "name": x.name,
		}})
		task := sendRaw(r, string(raw), "")
		artifacts := op.get("/tasks/" + task + "/artifacts").list("artifacts")
		require.Len(t, artifacts, 1)
		header, body := op.file("/tasks/" + task + "/artifacts/" + url.PathEscape(artifacts[0]["id"].(string)) + "/parts/0")
		require.Equal(t, "<script>1</script>", body)
		require.Equal(t, x.wantMedia, header.Get("Content-Type"))
		disposition, params, err := mime.ParseMediaType(header.Get("Content-Disposition"))
		require.NoError(t, err)
		require.Equal(t, "attachment", disposition)
		require.True(t, strings.HasPrefix(params["filename"], x.wantName), params["filename"])
		require.Empty(t, header.Get("Set-Cookie"))
	}

	// A URL is shown, and not fetched.
	linked := sendRaw(r, `{"kind":"file","file":{"uri":"https://agent.example.com/a.png","mimeType":"image/png"}}`, "")
	at = "/tasks/" + linked + "/artifacts/" + url.PathEscape(op.get("/tasks/" + linked + "/artifacts").list("artifacts")[0]["id"].(string))
	require.Equal(t, "https://agent.example.com/a.png", op.get(at).list("parts")[0]["url"])
	require.Equal(t, http.StatusConflict, op.do("GET", at+"/parts/0", "").Status)

	// A log without its chunks is short.
	require.Empty(t, op.get("/tasks/"+chunked+"/log?kind=run&kind=artifact&after=1000000").list("events"))
	kinds := column(op.get("/tasks/"+chunked+"/log?kind=message&kind=status&limit=500").list("events"), "kind")
	require.NotContains(t, kinds, "artifact")
	require.Contains(t, kinds, "message")
	require.Equal(t, "status", column(op.get("/tasks/"+chunked+"/log?kind=status&order=desc&limit=1").list("events"), "kind")[0])
}

// The usage of a task is what view v_usage has, by model.
func TestUsage(t *testing.T) {
	t.Parallel()
	events := filepath.Join(t.TempDir(), "events")
	require.NoError(t, os.WriteFile(events, []byte(`{"type": "artifact", "artifact": {"parts": [{"text": "x"}]}, "metadata": {"usage": {"totalTokens": 800}, "model": "small"}}
{"type": "artifact", "artifact": {"parts": [{"text": "x"}], "metadata": {"usage": {"inputTokens": 7, "outputTokens": "many"}}}}
{"type": "artifact", "artifact": {"parts": [{"text": "x"}]}, "metadata": {"usage": {"inputTokens": 1e400, "totalTokens": -3}, "model": {}}}
{"type": "complete", "message": {"parts": [{"text": "Booked."}], "metadata": {"model": "small", "usage": {"inputTokens": 1000, "outputTokens": 200, "totalTokens": 1200}}}}
`), 0o600))
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: strings.Replace(clustertest.Settings,
		"executor: {kind: demo}", "executor: {kind: command, command: {argv: [cat, "+events+"]}}", 1) + "\nadmin: {prices: {small: 2 / 10 EUR}}\n"})
	op := as(t, r, "")
	id := send(r, "", "book")
	models := op.get("/tasks/" + id + "/usage").list("models")
	n := func(v string) json.Number { return json.Number(v) }
	require.Equal(t, []object{
		{"reports": n("2"), "input_tokens": n("7"), "output_tokens": n("0"), "total_tokens": n("7")},
		{"model": "small", "reports": n("2"), "input_tokens": n("1000"), "output_tokens": n("200"), "total_tokens": n("2000"), "cost": n("0.004")},
	}, models)
	task := op.get("/tasks/" + id).read()
	require.Equal(t, []any{n("2007"), n("0.004")}, []any{task["tokens"], task["cost"]})
	require.Equal(t, "EUR", op.get("/me").text("currency"))
}
