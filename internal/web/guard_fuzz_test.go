package web_test

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

// aton reads an address as inet_aton and old resolvers do.
func aton(host string) (netip.Addr, bool) {
	parts := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var ip uint64
	for i, p := range parts {
		if p == "" || strings.Contains(p, "_") {
			return netip.Addr{}, false
		}
		base := 10
		switch {
		case strings.HasPrefix(p, "0x"):
			base, p = 16, p[2:]
			if p == "" {
				p = "0"
			}
		case len(p) > 1 && p[0] == '0':
			base = 8
		}
		n, err := strconv.ParseUint(p, base, 64)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		if err != nil || n >= 1<<bits {
			return netip.Addr{}, false
		}
		ip = ip<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)}), true
}

// FuzzURL follows a URL that a client may set to the address that would be dialed. No URL may lead to a connection within
// our network, however a resolver reads it.
func FuzzURL(f *testing.F) {
	for url := range attacks {
		f.Add(url)
	}
	f.Add("https://public.example:8443/a?b=c")
	f.Add("http://93.184.216.34/")
	f.Add("https://[2606:2800:21f::1]:443/")
	g := web.NewGuard(web.GuardOptions{})
	f.Fuzz(func(t *testing.T, raw string) {
		to, err := g.Parse(raw)
		if err != nil {
			return
		}
		u := to.URL
		again, err := g.Parse(u.String())
		if err != nil || again.URL.String() != u.String() || again.Host != to.Host {
			t.Fatalf("%q is accepted as %v, and that as %v (%v)", raw, to, again, err)
		}
		// The raw URL, too: it is stored, and the POST goes there.
		for _, text := range []string{raw, u.String()} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, text, http.NoBody)
			if err != nil {
				t.Fatalf("%q is accepted and cannot be requested: %v", text, err)
			}
			host := request.URL.Hostname()
			if mapped, err := idna.Lookup.ToASCII(host); err == nil {
				host = mapped
			}
			host = strings.ToLower(host)
			ip, err := netip.ParseAddr(host)
			if err != nil {
				var legacy bool
				if ip, legacy = aton(host); !legacy {
					continue
				}
				t.Fatalf("%q is accepted; some take its host for %s", text, ip)
			}
			if n := net.IP(ip.AsSlice()); !n.IsGlobalUnicast() || n.IsPrivate() || ip.Is4In6() {
				t.Fatalf("%q is accepted; its host is %s", text, ip)
			}
		}
	})
}
