package a2atest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Shown is everything that a client sees of an answer, except the date, and whether it succeeded. Of a running stream
// it is the first event.
type Shown struct {
	Whole string
	OK    bool
}

// Show makes a request and shows the answer byte by byte.
func (p *Peer) Show(w *Wire, op Op, a *Args) Shown {
	p.T.Helper()
	if w.Binding == GRPC {
		return p.ShowGRPC(w, w.methods[op], JSON(w.Params(op, a)), w.header(a)...)
	}
	verb, path, body := w.web(op, a)
	return p.ShowHTTP(verb, path, body, w.header(a)...)
}

// ShowHTTP is Show for a request that the caller built.
func (p *Peer) ShowHTTP(verb, path string, body []byte, header ...string) Shown {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
	defer cancel()
	resp, err := do(ctx, http.DefaultClient, verb, p.URL+path, body, header)
	require.NoError(p.T, err, "%s %s", verb, path)
	defer resp.Body.Close()
	content, going := ShowBody(p.T, resp)
	resp.Header.Del("Date")
	var head bytes.Buffer
	require.NoError(p.T, resp.Header.Write(&head))
	return Shown{
		fmt.Sprintf("%d\n%s\n%s", resp.StatusCode, strings.ReplaceAll(head.String(), "\r", ""), content),
		resp.StatusCode < 300 && (going || !bytes.Contains(content, []byte(`"error":`))),
	}
}

// ShowBody is the body of an answer. Of a stream that does not begin with an error it is the first event.
func ShowBody(t testing.TB, resp *http.Response) (content []byte, going bool) {
	t.Helper()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		lines := bufio.NewReader(resp.Body)
		for !bytes.HasSuffix(content, []byte("\n\n")) {
			line, err := lines.ReadBytes('\n')
			content = append(content, line...)
			if errors.Is(err, io.EOF) {
				return content, false
			}
			require.NoError(t, err)
		}
		if !bytes.Contains(content, []byte(`"error":`)) {
			return content, true
		}
		resp.Body = io.NopCloser(lines)
	}
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return append(content, rest...), false
}

// ShowGRPC is Show for a message in JSON, unchanged.
func (p *Peer) ShowGRPC(w *Wire, method string, message []byte, header ...string) Shown {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
	defer cancel()
	s, newOut, err := p.invoke(ctx, w, method, message, header)
	require.NoError(p.T, err, "%s %s", method, message)
	out := newOut()
	err = s.RecvMsg(out)
	if err == nil {
		content, err := protojson.Marshal(out)
		require.NoError(p.T, err)
		return Shown{fmt.Sprintf("OK\n\n%s", content), true}
	}
	var b strings.Builder
	status := grpcstatus.Convert(err)
	first, err := s.Header()
	require.NoError(p.T, err)
	fmt.Fprintf(&b, "%s\n", status.Code())
	for _, md := range []metadata.MD{first, s.Trailer()} {
		for _, name := range slices.Sorted(maps.Keys(md)) {
			if !strings.HasSuffix(name, "-bin") { // the details, shown below
				fmt.Fprintf(&b, "%s: %q\n", name, md[name])
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", status.Message())
	for _, d := range status.Proto().GetDetails() {
		content, err := protojson.Marshal(d)
		require.NoError(p.T, err)
		var plain any // the library inserts random blanks
		require.NoError(p.T, json.Unmarshal(content, &plain))
		b.Write(JSON(plain))
	}
	return Shown{b.String(), false}
}
