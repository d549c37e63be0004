package outbound_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/outbound"
	"github.com/holdfast-a2a/holdfast/internal/secret"
)

func TestURLsAreChecked(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"http://host":          "",
		"https://u:pw@host/p":  "",
		"http://%s3cret":       "url is not a URL",
		"ftp://s3cret@host":    "url must begin with http:// or https://",
		"host/s3cret":          "url must begin with http:// or https://",
		"http:///path/s3cret":  "url has no host",
		"HTTPS://host.example": "",
	} {
		got := ""
		u := outbound.CheckURL("url", value, func(option, format string, args ...any) { got = option + " " + fmt.Sprintf(format, args...) })
		require.Equal(t, want, got, value)
		require.Equal(t, want == "url is not a URL", u == nil, value)
	}
}

func TestHeadersAreChecked(t *testing.T) {
	t.Parallel()
	var got []string
	outbound.CheckHeaders(map[string]string{
		"Authorization": "Bearer s3cret", "content-type": "s3cret", "X-Ours": "s3cret", "x-value": "s3cret\n", "a b": "s3cret",
	}, func(name string) bool { return name == "X-Ours" }, func(option, format string, args ...any) {
		got = append(got, option+" "+fmt.Sprintf(format, args...))
	})
	require.Equal(t, []string{
		"headers.X-Ours is set by Holdfast; remove it",
		"headers.a b is not the name of an HTTP header",
		"headers.content-type is set by Holdfast; remove it",
		"headers.x-value has a value with characters that HTTP headers forbid",
	}, got)
}

func TestCredentialsComeFromFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{
		" s3cret\n":        "",
		" \n":              " is empty",
		"s3cret\nanother":  " has more than a credential; write it on one line",
		"s3cret\x00nother": " has more than a credential; write it on one line",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		got, err := outbound.Credential(t.Context(), secret.File(file))
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, "s3cret", got)
			continue
		}
		require.EqualError(t, err, file+want)
	}
	_, err := outbound.Credential(t.Context(), secret.File(file+"-missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSecretsAreRemoved(t *testing.T) {
	t.Parallel()
	redact := outbound.Redactor(map[string]string{"Authorization": "Bearer token-1", "X-Short": "abc"},
		[]string{"https://user:password@host/?key=key-1%2F2", "%"}, "token-1-and-more", "")
	require.Equal(t, "[redacted], [redacted], [redacted], [redacted], [redacted], abc, [redacted], Basic [redacted]",
		redact("Bearer token-1, token-1, password, key=key-1%2F2, key-1/2, abc, token-1-and-more, Basic dXNlcjpwYXNzd29yZA=="))
	require.Equal(t, "[redacted]… and passwor, [redacted]", redact("passwo… and passwor, key=key-1"), "of a text that was cut")
	require.Equal(t, "text", outbound.Redactor(nil, nil)("text"))
}
