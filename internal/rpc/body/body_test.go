package body

import (
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
		content, fault := Limits{ReserveNothing: !reserves}.OrDefaults().Read(httptest.NewRecorder(), r, nil)
		require.Nil(t, fault)
		require.Equal(t, "short", string(content))
		require.GreaterOrEqual(t, cap(content), least)
		if !reserves {
			require.LessOrEqual(t, cap(content), 1024)
		}
	}
}

func TestIsJSON(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"application/json":                        true,
		"":                                        true,
		"application/json; charset=utf-8":         true,
		"Application/JSON;charset=\"UTF-8\"":      true,
		"application/json; charset=iso-8859-1":    true, // harmless with an ASCII body
		"application/json;":                       true,
		"application/json; charset":               true,
		"application/a2a+json":                    true,
		"application/vnd.api+json; profile=\"x\"": true,
		"text/plain":                              false,
		"text/json":                               false,
		"application/x-www-form-urlencoded":       false,
		"multipart/form-data; boundary=x":         false,
		"application/jsonp":                       false,
		"json":                                    false,
		"/":                                       false,
		"text/plain, application/json":            false,
		"application/x-json-is-not-it; a=application/json": false,
	} {
		require.Equal(t, want, IsJSON(contentType), contentType)
	}
}
