package web

import (
	"context"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// complain says what is wrong with an option.
type complain = func(option, format string, args ...any)

// EscapeQuery escapes what a query may contain by the URL standard of browsers, but not in a request: spaces, double quotes, angle
// brackets, control and non-ASCII characters. The parser of Go leaves them as they are.
func EscapeQuery(query string) string {
	var b strings.Builder
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// CheckURL complains about an address that no client of ours can call. It returns nil if it is not a URL. It repeats no
// value, because it may contain a password.
func CheckURL(option, value string, complain complain) *url.URL {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		complain(option, "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		complain(option, "must begin with http:// or https://")
	case u.Host == "":
		complain(option, "has no host")
	case u.RawQuery != EscapeQuery(u.RawQuery):
		complain(option, "has a query with characters that must be escaped, such as %%20 for a space")
	}
	return u
}

// CheckHeaders complains about headers that a configuration cannot send: malformed ones, those of the connection, and
// those that the caller sets itself. ours adds to the latter, by canonical name; it may be nil. CheckHeaders names the
// option of each, and repeats no value, because it may be a credential.
func CheckHeaders(headers map[string]string, ours func(name string) bool, complain complain) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		option, canonical := "headers."+name, textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			complain(option, "is not the name of an HTTP header")
		case slices.Contains(reserved, canonical) || ours != nil && ours(canonical):
			complain(option, "is set by Holdfast; remove it")
		case !httpguts.ValidHeaderFieldValue(headers[name]):
			complain(option, "has a value with characters that HTTP headers forbid")
		}
	}
}

// CheckForward complains about names of headers that cannot be passed on from a client to an agent: those of CheckHeaders,
// and those that are about one connection or one body.
func CheckForward(option string, names []string, ours func(name string) bool, complain complain) {
	seen := map[string]bool{}
	for i, name := range names {
		at, canonical := fmt.Sprintf("%s[%d]", option, i), textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			complain(at, "%q is not the name of an HTTP header", name)
		case slices.Contains(ofOne, canonical):
			complain(at, "%s is about one connection or body; remove it", name)
		case slices.Contains(reserved, canonical) || ours(canonical):
			complain(at, "%s is set by Holdfast; remove it", name)
		case seen[canonical]:
			complain(at, "%s is given twice; remove one", name)
		}
		seen[canonical] = true
	}
}

// ofOne are the headers of one connection or body that are not among reserved.
var ofOne = []string{
	"Content-Encoding", "Content-Language", "Content-Range", "Expect", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Range", "Te",
}

// reserved are the headers that every caller sets, and those of the connection.
var reserved = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host", "Idempotency-Key", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// Credential reads a token, key or password for a header. Callers read it at each call, because orchestrators and commands
// replace credentials. The error names the source and nothing of the value.
func Credential(ctx context.Context, from *secrets.Source) (string, error) {
	text, err := from.Recent(ctx)
	text = strings.TrimSpace(text)
	if err == nil && !httpguts.ValidHeaderFieldValue(text) {
		return "", fmt.Errorf("%s has more than a credential; write it on one line", from)
	}
	return text, err
}
