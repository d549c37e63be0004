package web

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/require"
)

func networks(of ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(of))
	for i, n := range of {
		parsed[i] = netip.MustParsePrefix(n)
	}
	return parsed
}

func TestClient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		source ProxySource
		peer   string
		values []string
		want   string
	}{
		{"no proxy", XForwardedFor, "203.0.113.9:4711", []string{"198.51.100.1"}, "203.0.113.9:4711"},
		{"a proxy", XForwardedFor, "10.0.0.1:4711", []string{"203.0.113.9"}, "203.0.113.9:0"},
		{"with a port", XForwardedFor, "10.0.0.1:4711", []string{"203.0.113.9:80"}, "203.0.113.9:80"},
		{"two proxies", XForwardedFor, "10.0.0.1:4711", []string{"203.0.113.9, 10.1.2.3"}, "203.0.113.9:0"},
		{"two headers", XForwardedFor, "10.0.0.1:4711", []string{"203.0.113.9", "10.1.2.3"}, "203.0.113.9:0"},
		{"the client claims another address", XForwardedFor, "10.0.0.1:4711", []string{"198.51.100.1, 203.0.113.9"}, "203.0.113.9:0"},
		{"the client claims to be a proxy", XForwardedFor, "10.0.0.1:4711", []string{"198.51.100.1, 10.9.9.9, 203.0.113.9"}, "203.0.113.9:0"},
		{"no header", XForwardedFor, "10.0.0.1:4711", nil, "10.0.0.1:4711"},
		{"nonsense", XForwardedFor, "10.0.0.1:4711", []string{"203.0.113.9, x"}, "10.0.0.1:4711"},
		{"nonsense before a proxy", XForwardedFor, "10.0.0.1:4711", []string{"x, 10.0.0.2"}, "10.0.0.2:0"},
		{"only proxies", XForwardedFor, "10.0.0.1:4711", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3:0"},
		{"IPv6", XForwardedFor, "[fd00::1]:4711", []string{"2001:db8::7"}, "[2001:db8::7]:0"},
		{"IPv4 in IPv6", XForwardedFor, "[::ffff:10.0.0.1]:4711", []string{"::ffff:203.0.113.9"}, "203.0.113.9:0"},
		{"a socket of the machine", XForwardedFor, "@", []string{"203.0.113.9"}, "@"},
		{"the other header", Forwarded, "10.0.0.1:4711", []string{`for=203.0.113.9`}, "203.0.113.9:0"},
		{"parameters", Forwarded, "10.0.0.1:4711", []string{`proto=https;For="203.0.113.9:80";by=10.0.0.1`}, "203.0.113.9:80"},
		{"quoted IPv6", Forwarded, "10.0.0.1:4711", []string{`for="[2001:db8::7]:80", for=10.0.0.9`}, "[2001:db8::7]:80"},
		{"a comma in quotes", Forwarded, "10.0.0.1:4711", []string{`host="a,for=198.51.100.1";for=203.0.113.9`}, "203.0.113.9:0"},
		{"an escaped quote", Forwarded, "10.0.0.1:4711", []string{`host="a\",for=198.51.100.1,";for=203.0.113.9`}, "203.0.113.9:0"},
		{"an open quote", Forwarded, "10.0.0.1:4711", []string{`for=198.51.100.1;x="`, "for=203.0.113.9"}, "10.0.0.1:4711"},
		{"an open quote before a quoted address", Forwarded, "10.0.0.1:4711", []string{`for=198.51.100.1;x="`, `for="[2001:db8::7]:80"`}, "10.0.0.1:4711"},
		{"an open quote and an escape", Forwarded, "10.0.0.1:4711", []string{`for=198.51.100.1;x="\`, `for="[2001:db8::7]:80", for=10.0.0.2`}, "10.0.0.1:4711"},
		{"unknown", Forwarded, "10.0.0.1:4711", []string{`for=203.0.113.9, for=unknown`}, "10.0.0.1:4711"},
		{"hidden", Forwarded, "10.0.0.1:4711", []string{`for=_secret, for=10.0.0.2`}, "10.0.0.2:0"},
		{"without for", Forwarded, "10.0.0.1:4711", []string{`for=203.0.113.9, by=10.0.0.1`}, "10.0.0.1:4711"},
		{"PROXY protocol", PROXYProtocol, "10.0.0.1:4711", []string{"203.0.113.9"}, "10.0.0.1:4711"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			trusted := NewTrustedProxies(networks("10.0.0.0/8", "fd00::/8"), tt.source)
			header := map[ProxySource]string{XForwardedFor: "X-Forwarded-For", Forwarded: "Forwarded", PROXYProtocol: "X-Forwarded-For"}[tt.source]
			got := trusted.Client(tt.peer, func(name string) []string {
				if name != header {
					return nil
				}
				return tt.values
			})
			require.Equal(t, tt.want, got)
		})
	}
}

func TestNobodyIsTrusted(t *testing.T) {
	t.Parallel()
	trusted := NewTrustedProxies(nil, XForwardedFor)
	require.False(t, trusted.Has("10.0.0.1:1"))
	require.Equal(t, "10.0.0.1:1", trusted.Client("10.0.0.1:1", func(string) []string { return []string{"203.0.113.9"} }))
}

// Only trusted proxies say whether a client uses TLS.
func TestHandler(t *testing.T) {
	t.Parallel()
	var got *http.Request
	h := NewTrustedProxies(networks("10.0.0.0/8"), XForwardedFor).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	for peer, want := range map[string]struct{ address, proto string }{
		"10.0.0.1:1":  {"203.0.113.9:0", "https"},
		"192.0.2.1:1": {"192.0.2.1:1", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		r.Header.Set("X-Forwarded-Proto", "https")
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, want.address, got.RemoteAddr)
		require.Equal(t, want.proto, got.Header.Get("X-Forwarded-Proto"))
	}
}

func TestListener(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		trusted string
		version byte
		want    string // "": cut off
	}{
		{"version 1", "127.0.0.0/8", 1, "203.0.113.9:4711"},
		{"version 2", "127.0.0.0/8", 2, "203.0.113.9:4711"},
		{"without a header", "127.0.0.0/8", 0, "127.0.0.1"},
		{"not trusted", "10.0.0.0/8", 2, ""},
		{"not trusted, without a header", "10.0.0.0/8", 0, "127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(r.RemoteAddr))
			})}
			go func() { _ = s.Serve(NewTrustedProxies(networks(tt.trusted), PROXYProtocol).Listener(tcp, time.Hour)) }()
			t.Cleanup(func() { _ = s.Close() })

			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Dial: func(network, address string) (net.Conn, error) { //nolint:staticcheck // needs no context
				c, err := net.Dial(network, address)
				if err != nil || tt.version == 0 {
					return c, err
				}
				from := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 4711}
				_, err = proxyproto.HeaderProxyFromAddrs(tt.version, from, c.RemoteAddr()).WriteTo(c)
				return c, err
			}}}
			answer, err := client.Get("http://" + tcp.Addr().String())
			if tt.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			defer answer.Body.Close()
			text := make([]byte, 100)
			n, _ := answer.Body.Read(text)
			require.Contains(t, string(text[:n]), tt.want)
		})
	}
}

func FuzzClient(f *testing.F) {
	f.Add(`for="[2001:db8::7]:80";by=10.0.0.1, for=10.0.0.9`)
	f.Add("203.0.113.9, 10.1.2.3")
	f.Add(`"\`)
	f.Fuzz(func(t *testing.T, header string) {
		for _, source := range []ProxySource{XForwardedFor, Forwarded} {
			got := NewTrustedProxies(networks("10.0.0.0/8"), source).Client("10.0.0.1:1", func(string) []string { return []string{header} })
			_, err := netip.ParseAddrPort(got)
			require.NoError(t, err)
		}
	})
}
