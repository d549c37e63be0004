package web

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// RPCAddress returns the URL of the address that a card gives for gRPC. Official servers write host:port, some cards a URL.
// Without a scheme it is that of the card. The host is that of the card, because the credential, and the conversation, go
// only where the operator sends them. The port may differ: few servers have gRPC on the port of their card (decision 0067). Errors tell the operator to use the setting.
func RPCAddress(named, card, setting string) (string, error) {
	from, err := url.Parse(card)
	if err != nil {
		return "", err
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
		return "", fmt.Errorf("names the address %.200q, which is no host:port", named)
	case !strings.EqualFold(to.Hostname(), from.Hostname()):
		return "", fmt.Errorf("names the address %.200q of another host; set %s to it, with http:// or https://, if that is right", named, setting)
	case scheme == "http" && from.Scheme == "https":
		return "", fmt.Errorf("names the address %.200q without TLS; set %s to it if that is right", named, setting)
	}
	return scheme + "://" + to.Host, nil
}

// Messages is a codec of gRPC that passes messages through as they are on the wire: a *[]byte.
type Messages struct{}

// Name implements encoding.CodecV2.
func (Messages) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (Messages) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (Messages) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Metadata returns headers as metadata of gRPC. Names and values with other characters do not exist there.
func Metadata(headers http.Header) (metadata.MD, error) {
	values := metadata.MD{}
	for name, all := range headers {
		key := strings.ToLower(name)
		other := func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
		}
		if strings.ContainsFunc(key, other) || strings.HasPrefix(key, "grpc-") {
			return nil, fmt.Errorf("whose metadata cannot have the header %s", name)
		}
		if key == "user-agent" {
			continue // the connection has it
		}
		for _, value := range all {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				return nil, fmt.Errorf("whose metadata must be printable ASCII; the header %s is not", name)
			}
		}
		values[key] = all
	}
	return values, nil
}

// HostPort returns the host and port of a URL.
func HostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
