package client

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

// sameOrigin reports whether two URLs have one scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(hostPort(a), hostPort(b))
}

// hostPort returns the host and port of a URL.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// sameOriginRedirects is a http.Client's CheckRedirect. A redirect to another host, or to one without TLS, would carry the
// credentials and the message there.
func sameOriginRedirects(to *http.Request, via []*http.Request) error {
	if len(via) == 10 || !sameOrigin(to.URL, via[0].URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// PlaceError says that a card names an address that the credential, and the conversation, must not go to.
type PlaceError struct{ Problem string }

func (e *PlaceError) Error() string { return e.Problem }

// Place returns the URL to call for an interface of a card: what the card names, if that has the origin of the card, because the
// credential, and the conversation, go only where the operator sends them. Errors are a PlaceError, and tell the operator to use the
// setting.
//
// Over gRPC official servers write host:port, some cards a URL. Without a scheme it is that of the card. The port may differ: few
// servers have gRPC on the port of their card.
func Place(w *client.Wire, named, card, setting string) (string, error) {
	from, err := url.Parse(card)
	if err != nil {
		return "", err
	}
	if w.Binding != client.GRPC {
		if to, err := url.Parse(named); err != nil || !sameOrigin(to, from) {
			return "", &PlaceError{fmt.Sprintf("names the URL %.200q of another host; set %s to it if that is right", named, setting)}
		}
		return named, nil
	}
	scheme, rest, ok := strings.Cut(named, "://")
	switch {
	case !ok, scheme == "dns":
		scheme, rest = from.Scheme, strings.TrimPrefix(strings.TrimPrefix(named, "dns://"), "/")
	case scheme == "grpc":
		scheme = "http"
	case scheme == "grpcs":
		scheme = "https"
	}
	to, err := url.Parse(scheme + "://" + rest)
	switch {
	case err != nil || to.Host == "" || to.User != nil || scheme != "http" && scheme != "https":
		return "", &PlaceError{fmt.Sprintf("names the address %.200q, which is no host:port", named)}
	case !strings.EqualFold(to.Hostname(), from.Hostname()):
		return "", &PlaceError{fmt.Sprintf("names the address %.200q of another host; set %s to it, with http:// or https://, if that is right", named, setting)}
	case scheme == "http" && from.Scheme == "https":
		return "", &PlaceError{fmt.Sprintf("names the address %.200q without TLS; set %s to it if that is right", named, setting)}
	}
	return scheme + "://" + to.Host, nil
}

// CardURLs returns where a server may have its card: at the well-known paths below its URL, then at those of its host, the newest path
// first.
func CardURLs(server *url.URL) (all []string) {
	for _, base := range []string{strings.TrimRight(server.Path, "/"), ""} {
		for _, path := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json"} {
			at := *server
			at.Path, at.RawPath = base+path, ""
			if s := at.String(); !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}
