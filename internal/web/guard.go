package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
	"golang.org/x/net/idna"
)

// MaxURL is the longest accepted URL of a webhook, in bytes.
const MaxURL = 2 << 10

// lookupTime bounds the name resolution when a webhook is set, because a client waits for it.
const lookupTime = 2 * time.Second

// private are the networks that AllowPrivate adds. They exclude link-local addresses: in clouds, the service that hands
// out the machine's credentials usually has one.
var private = prefixes(
	"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
	"::1/128", "fc00::/7",
)

// cloudMetadata are addresses, not link-local, where clouds hand out credentials: Azure, Alibaba Cloud, AWS and Google
// Cloud. The first counts as public, the others as private. An operator may allow a network that contains them.
var cloudMetadata = prefixes("168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128")

// nat64 is where an IPv6-only network maps the IPv4 addresses. An operator may allow it. Then an address in it is
// allowed only if its IPv4 address is allowed.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(cidrs ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(cidrs))
	for i, c := range cidrs {
		out[i] = netip.MustParsePrefix(c)
	}
	return out
}

// GuardRefusal says why a webhook may not be sent to a URL. It may be shown to the client, because it reveals nothing about
// our network. A name without an address and a name with a private address get the same text.
type GuardRefusal struct{ Reason string }

func (r *GuardRefusal) Error() string { return r.Reason }

func refuse(format string, args ...any) error { return &GuardRefusal{fmt.Sprintf(format, args...)} }

// errAddress is the only answer about addresses.
var errAddress = refuse("the host has no address that webhooks may be sent to; an operator can allow it with push.allow_private or push.allowed_networks")

// Ports is a range of ports.
type Ports struct{ First, Last uint16 }

// GuardOptions are an operator's rules. The zero value allows http and https to any port of a public address.
type GuardOptions struct {
	HTTPSOnly    bool
	AllowPrivate bool           // also loopback, private and shared addresses
	Networks     []netip.Prefix // allowed, unless Denied has the address
	Denied       []netip.Prefix // never allowed
	Ports        []Ports        // the only allowed ones; empty: any
	Resolver     *net.Resolver  // nil: the system's resolver
}

// Guard applies the rules. Its methods may be called from many goroutines.
type Guard struct {
	opt    GuardOptions
	public *ssrf.Guardian
	dialer net.Dialer
}

// NewGuard makes a guard.
func NewGuard(o GuardOptions) *Guard {
	var v4, v6 []netip.Prefix
	allow := func(all []netip.Prefix) {
		for _, p := range all {
			if p.Addr().Is4() {
				v4 = append(v4, p)
			} else {
				v6 = append(v6, p)
			}
		}
	}
	allow(o.Networks)
	if o.AllowPrivate {
		allow(private)
	}
	g := &Guard{opt: o, public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))}
	g.dialer = net.Dialer{Resolver: o.Resolver, ControlContext: g.control}
	return g
}

// GuardedTarget is a URL that webhooks may be sent to, as far as the URL tells.
type GuardedTarget struct {
	URL *url.URL // with its host in lower-case ASCII
	// Host is the host and port, the same for all spellings of them: capitals, a dot at the end, Unicode, and leading
	// zeros of the port make no difference. URLs with the same Host share a receiver.
	Host string
}

// Check reports whether a client may set a webhook to a URL. The error is a *Refusal.
//
// Check resolves the name, for at most two seconds. If the resolver does not answer, the webhook may be set: each dial
// checks again. With AllowPrivate almost every address is allowed, so only the dials check names.
func (g *Guard) Check(ctx context.Context, raw string) (*GuardedTarget, error) {
	to, err := g.Parse(raw)
	if err != nil || g.opt.AllowPrivate {
		return to, err
	}
	host := to.URL.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return to, nil // Parse has checked it
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	resolver := g.opt.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	found, err := resolver.LookupNetIP(ctx, "ip", host)
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return nil, errAddress
	}
	for _, ip := range found {
		if !g.allows(ip.Unmap()) {
			return nil, errAddress
		}
	}
	return to, nil
}

// Parse makes the checks that need only the URL. The error is a *Refusal.
func (g *Guard) Parse(raw string) (*GuardedTarget, error) {
	if len(raw) > MaxURL {
		return nil, refuse("the URL is longer than %d bytes", MaxURL)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, refuse("not a URL")
	case g.opt.HTTPSOnly && u.Scheme != "https":
		return nil, refuse("the URL must begin with https://")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, refuse("the URL must begin with https:// or http://")
	case u.User != nil:
		return nil, refuse("the URL holds a user name; credentials belong into authentication")
	case strings.Contains(raw, "#"):
		return nil, refuse("the URL has a fragment")
	case u.Hostname() == "":
		return nil, refuse("the URL names no host")
	}
	host, err := g.host(u)
	if err != nil {
		return nil, err
	}
	port, err := g.port(u)
	if err != nil {
		return nil, err
	}
	named := u.Port() != ""
	u.RawQuery = EscapeQuery(u.RawQuery)
	u.Host = host
	if strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	}
	if named {
		u.Host += ":" + port
	}
	return &GuardedTarget{URL: u, Host: net.JoinHostPort(strings.TrimSuffix(host, "."), port)}, nil
}

// name is the form of names that we resolve. The rules for hosts do not allow underscores, but some hosts use them.
var name = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.?$`)

// number matches the last part of an address, but no top-level domain. Some resolvers read 127.1, 0x7f.1 and 2130706433
// as addresses.
var number = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)\.?$`)

func (g *Guard) host(u *url.URL) (string, error) {
	host := strings.ToLower(u.Hostname())
	if !ascii(host) {
		// The HTTP client does the same. Convert first, because it turns full-width digits into digits.
		var err error
		if host, err = idna.Lookup.ToASCII(host); err != nil {
			return "", refuse("the host is not a name")
		}
	}
	bracketed := strings.HasPrefix(u.Host, "[")
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && (bracketed != ip.Is6() || ip.Zone() != ""), err != nil && bracketed:
		return "", refuse("the host is not an address")
	case err == nil:
		if !g.allows(ip) {
			return "", errAddress
		}
		return ip.String(), nil
	case number.MatchString(host):
		return "", refuse("the host is an address in an unusual form")
	case len(host) > 253 || !name.MatchString(host):
		return "", refuse("the host is not a name")
	}
	return host, nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// port returns the port that the URL names, or the one of its scheme.
func (g *Guard) port(u *url.URL) (string, error) {
	port := uint64(80)
	if u.Scheme == "https" {
		port = 443
	}
	if text := u.Port(); text != "" {
		var err error
		if port, err = strconv.ParseUint(text, 10, 16); err != nil || port == 0 {
			return "", refuse("the port is not a number from 1 to 65535")
		}
	}
	if !g.allowsPort(uint16(port)) {
		return "", refuse("webhooks may not be sent to port %d", port)
	}
	return strconv.FormatUint(port, 10), nil
}

func (g *Guard) allowsPort(port uint16) bool {
	for _, p := range g.opt.Ports {
		if p.First <= port && port <= p.Last {
			return true
		}
	}
	return len(g.opt.Ports) == 0
}

func (g *Guard) allows(ip netip.Addr) bool {
	// A denied address stays denied inside an IPv6 address (mapped, NAT64).
	if within(g.opt.Denied, ip) || within(g.opt.Denied, ip.Unmap()) || g.public.SafeAddr(ip) != nil || within(cloudMetadata, ip) && !within(g.opt.Networks, ip) {
		return false
	}
	if nat64.Contains(ip) {
		b := ip.As16()
		return g.allows(netip.AddrFrom4([4]byte(b[12:])))
	}
	return true
}

func within(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// DialContext connects for an HTTP transport. It resolves the name once, and checks each address before it connects to
// it.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialer.DialContext(ctx, network, address)
}

// control checks an address. The dialer calls it with a socket, before it connects.
func (g *Guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuse("not an address")
	}
	if !g.allowsPort(to.Port()) {
		return refuse("webhooks may not be sent to port %d", to.Port())
	}
	if !g.allows(to.Addr()) {
		return errAddress
	}
	return nil
}
