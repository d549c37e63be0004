package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"
)

// ProxySource says where proxies write the address of the client.
type ProxySource string

// The sources.
const (
	XForwardedFor ProxySource = "x-forwarded-for"
	Forwarded     ProxySource = "forwarded"
	PROXYProtocol ProxySource = "proxy-protocol"
)

// TrustedProxies are proxies whose word about the address of a client counts. Nil trusts nobody.
type TrustedProxies struct {
	networks []netip.Prefix
	source   ProxySource
}

// NewTrustedProxies returns the proxies in the networks. Without networks it returns nil.
func NewTrustedProxies(networks []netip.Prefix, source ProxySource) *TrustedProxies {
	if len(networks) == 0 {
		return nil
	}
	return &TrustedProxies{networks: networks, source: source}
}

// Has reports whether an address, with or without a port, is that of a trusted proxy.
func (t *TrustedProxies) Has(address string) bool {
	at, ok := parse(address)
	return ok && t.has(at.Addr())
}

func (t *TrustedProxies) has(ip netip.Addr) bool {
	return t != nil && slices.ContainsFunc(t.networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// Client returns the address of the client whose request came over a connection from peer. values returns the values of a
// header. Each proxy appends the address of its own peer, so the last one that is not that of a trusted proxy counts: a
// client can write only the ones before it. Without such an address, the result is the farthest known one.
func (t *TrustedProxies) Client(peer string, values func(header string) []string) string {
	if t == nil || t.source == PROXYProtocol || !t.Has(peer) {
		return peer
	}
	var hops []string
	switch t.source {
	case Forwarded:
		hops = forwardedFor(strings.Join(values("Forwarded"), ","))
	default:
		hops = strings.Split(strings.Join(values("X-Forwarded-For"), ","), ",")
	}
	client := peer
	for _, hop := range slices.Backward(hops) {
		at, ok := parse(strings.TrimSpace(hop))
		if !ok {
			break // "unknown", a name, or nonsense
		}
		client = at.String()
		if !t.has(at.Addr()) {
			break
		}
	}
	return client
}

// Handler gives requests the address of their client as RemoteAddr, and removes X-Forwarded-Proto from those that no trusted
// proxy has sent.
func (t *TrustedProxies) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.source == PROXYProtocol || !t.Has(r.RemoteAddr) {
			for _, header := range []string{"X-Forwarded-Proto", "X-Forwarded-Protocol", "X-Forwarded-Ssl", "X-Url-Scheme"} {
				r.Header.Del(header)
			}
		}
		r.RemoteAddr = t.Client(r.RemoteAddr, r.Header.Values)
		next.ServeHTTP(w, r)
	})
}

// Listener reads the headers of the PROXY protocol from trusted proxies, if that is the source; each header must arrive
// within a time. Other peers that send one are cut off.
func (t *TrustedProxies) Listener(l net.Listener, within time.Duration) net.Listener {
	if t == nil || t.source != PROXYProtocol {
		return l
	}
	return &proxyproto.Listener{
		Listener: l, ReadHeaderTimeout: within,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if t.Has(o.Upstream.String()) {
				return proxyproto.USE, nil
			}
			return proxyproto.REJECT, nil
		},
	}
}

// parse reads an IP address with or without a port; IPv6 also in brackets. Without a port, the port is 0.
func parse(address string) (netip.AddrPort, bool) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		ip, ipErr := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"))
		if ipErr != nil {
			return netip.AddrPort{}, false
		}
		at = netip.AddrPortFrom(ip, 0)
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), true
}

// forwardedFor returns the values of the parameter for of each element of a Forwarded header (RFC 7239, section 4), and ""
// for an element without one. A header with an open quote has none: a client could hide in it what the proxy has appended.
func forwardedFor(header string) []string {
	var hops []string
	elements, closed := split(header, ',')
	if !closed {
		return nil
	}
	for _, element := range elements {
		hop := ""
		pairs, _ := split(element, ';')
		for _, pair := range pairs {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if strings.EqualFold(name, "for") {
				hop = unquote(value)
			}
		}
		hops = append(hops, hop)
	}
	return hops
}

// split splits at a separator outside of quoted strings (RFC 9110, section 5.6.4), and reports whether all of them are closed.
func split(s string, separator byte) (parts []string, closed bool) {
	quoted, begin := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			parts = append(parts, s[begin:i])
			begin = i + 1
		}
	}
	return append(parts, s[begin:]), !quoted
}

func unquote(value string) string {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return value
	}
	return strings.ReplaceAll(value[1:len(value)-1], `\`, "") // an address needs no backslash
}
