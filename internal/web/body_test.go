package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With ReserveNothing the buffer is about as long as the body that arrived, whatever length is announced.
func TestReserveNothing(t *testing.T) {
	t.Parallel()
	for reserves, least := range map[bool]int{true: 64 << 10, false: 0} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("short"))
		r.ContentLength = 64 << 10
		content, fault := BodyLimits{ReserveNothing: !reserves}.OrDefaults().Read(httptest.NewRecorder(), r, nil)
		require.Nil(t, fault)
		require.Equal(t, "short", string(content))
		require.GreaterOrEqual(t, cap(content), least)
		if !reserves {
			require.LessOrEqual(t, cap(content), 1024)
		}
	}
}

// The client has sent everything when it looks for the answer, as most clients do.
func TestAnswerToATooLongBodyArrives(t *testing.T) {
	t.Parallel()
	for _, framing := range []string{"Content-Length: 33554432\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2000000\r\n"} {
		server := httptest.NewServer(ReadOn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, fault := BodyLimits{Size: 1 << 20}.OrDefaults().Read(w, r, nil)
			w.WriteHeader(fault.Status)
		})))
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		body := strings.Repeat("x", 32<<20)
		_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+framing+body+"\r\n0\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
		require.NoError(t, res.Body.Close())
		require.NoError(t, c.Close())
		server.Close()
	}
}

func TestIsJSON(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"application/json":                     true,
		"":                                     true,
		"application/json; charset=utf-8":      true,
		"Application/JSON;charset=\"UTF-8\"":   true,
		"application/json; charset=iso-8859-1": true, // harmless with an ASCII body
		"application/json;":                    true, "application/json; charset": true, "application/a2a+json": true,
		"application/vnd.api+json; profile=\"x\"": true, "text/plain": false, "text/json": false,
		"application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false, "application/jsonp": false, "json": false,
		"/": false, "text/plain, application/json": false, "application/x-json-is-not-it; a=application/json": false,
	} {
		require.Equal(t, want, IsJSON(contentType), contentType)
	}
}
