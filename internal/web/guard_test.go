package web_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

// zone is a DNS server on a loopback address.
type zone struct {
	*net.Resolver
	mu      sync.Mutex
	answers map[string][][]string // by name; each lookup of A uses one up, the last one stays
	silent  atomic.Bool           // it refuses to answer
	asked   atomic.Int64
}

func serveZone(t *testing.T, answers map[string][][]string) *zone {
	t.Helper()
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	z := &zone{answers: answers}
	z.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		packet := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := z.answer(packet[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { require.NoError(t, conn.Close()); <-done })
	return z
}

func (z *zone) answer(packet []byte) []byte {
	var q dnsmessage.Message
	if q.Unpack(packet) != nil || len(q.Questions) != 1 {
		return nil
	}
	z.asked.Add(1)
	asked := q.Questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: q.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: q.Questions,
	}
	records, known := z.next(strings.TrimSuffix(asked.Name.String(), "."), asked.Type)
	switch {
	case z.silent.Load():
		reply.RCode = dnsmessage.RCodeServerFailure
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range records {
		ip := netip.MustParseAddr(text)
		header := dnsmessage.ResourceHeader{Name: asked.Name, Class: dnsmessage.ClassINET, Type: asked.Type}
		switch {
		case ip.Is4() && asked.Type == dnsmessage.TypeA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: ip.As4()}})
		case ip.Is6() && asked.Type == dnsmessage.TypeAAAA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	out, err := reply.Pack()
	if err != nil {
		return nil
	}
	return out
}

func (z *zone) next(host string, kind dnsmessage.Type) (records []string, known bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	rounds := z.answers[host]
	if len(rounds) == 0 {
		return nil, false
	}
	if kind == dnsmessage.TypeA && len(rounds) > 1 {
		z.answers[host] = rounds[1:]
	}
	return rounds[0], true
}

// names of the zone, each with one answer that never changes.
func names() map[string][][]string {
	answers := map[string][][]string{}
	for host, records := range map[string]string{
		"public.example":   "93.184.216.34",
		"both.example":     "93.184.216.34 2606:2800:21f:cb07:6820:80da:af6b:8b2c",
		"under_score.test": "93.184.216.34", "xn--bcher-kva.com": "93.184.216.34", "loopback.example": "127.0.0.1",
		"loopback6.example": "::1", "ten.example": "10.1.2.3", "metadata.example": "169.254.169.254", "ula.example": "fd00:ec2::254",
		"mixed.example": "93.184.216.34 10.0.0.1", "mapped.example": "::ffff:127.0.0.1", "sixtofour.example": "2002:7f00:1::",
		"zero.example": "0.0.0.0", "empty.example": "", "127.0.0.1.example": "127.0.0.1",
	} {
		answers[host] = [][]string{strings.Fields(records)}
	}
	return answers
}

const (
	noAddress = "the host has no address that webhooks may be sent to; an operator can allow it with push.allow_private or push.allowed_networks"
	unusual   = "the host is an address in an unusual form"
	noName    = "the host is not a name"
	noLiteral = "the host is not an address"
	noURL     = "not a URL"
	scheme    = "the URL must begin with https:// or http://"
	noHost    = "the URL names no host"
	badPort   = "the port is not a number from 1 to 65535"
	user      = "the URL holds a user name; credentials belong into authentication"
)

// attacks are URLs that no webhook may have, with the error that the client gets.
var attacks = map[string]string{}

func init() {
	add := func(words string, urls ...string) {
		for _, url := range urls {
			attacks[url] = words
		}
	}
	// Loopback and unspecified.
	add(noAddress,
		"http://127.0.0.1/", "http://127.0.0.1:9090/metrics", "http://127.8.8.8/", "http://0.0.0.0/", "http://0.1.2.3/",
		"http://[::1]/", "http://[::]/", "http://[0:0:0:0:0:0:0:1]:8080/", "http://[0000::1]/", "http://localhost/",
		"http://LOCALHOST:8080/", "http://localhost./", "https://loopback.example/", "https://loopback6.example/",
		"https://127.0.0.1.example/", "https://zero.example/", "http://\u2460\u2461\u2466.0.0.1/", // ①②⑦
		"http://127\u30020\u30020\u30021/",       // ideographic full stops
		"http://\uff11\uff12\uff17.0.0.1/",       // full-width digits
		"http://\u24db\u24de\u24d2al.ho\u24e2t/", // circled letters
	)
	// Addresses that only some parsers know as such.
	add(unusual,
		"http://127.1/", "http://127.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/",
		"http://0x7f.1/", "http://0177.0.0.1/", "http://017700000001/", "http://127.0.0.01/", "http://0/", "http://0x/",
		"http://127.0.0.1./", "http://10.0.0.256/", "http://4294967297/", "http://0xa9.0xfe.0xa9.0xfe/",
		"http://2852039166/", // 169.254.169.254
		"http://169.254.43518/", "http://public.example.1/",
	)
	// Private, shared and link-local.
	add(noAddress,
		"http://10.0.0.1/", "http://10.255.255.255/", "http://172.16.0.1/", "http://172.31.255.254/", "http://192.168.1.1/",
		"http://100.64.0.1/", "http://100.127.255.255/", "http://169.254.169.254/latest/meta-data/",
		"http://168.63.129.16/machine?comp=goalstate", "http://metadata.example/computeMetadata/v1/", "http://[fe80::1]/",
		"http://[fc00::1]/", "http://[fd00:ec2::254]/", "http://[fec0::1]/", "https://ten.example/", "https://ula.example/",
		"https://mixed.example/",
	)
	add(noLiteral, "http://[fe80::1%25eth0]/", "http://[::1%25lo]/")
	// Benchmarks, documentation, protocol assignments, multicast, reserved, broadcast.
	add(noAddress,
		"http://198.18.0.1/", "http://198.19.255.255/", "http://192.0.0.8/", "http://192.0.2.1/", "http://198.51.100.1/",
		"http://203.0.113.1/", "http://224.0.0.1/", "http://239.255.255.250/", "http://240.0.0.1/",
		"http://255.255.255.255/", "http://192.88.99.1/", "http://[ff02::1]/", "http://[2001:db8::1]/", "http://[3fff::1]/",
		"http://[100::1]/", "http://[2001:2::1]/", "http://[5f00::1]/", "http://[4000::1]/",
	)
	// An IPv4 address inside an IPv6 address.
	add(noAddress,
		"http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:93.184.216.34]/",
		"http://[::ffff:0:127.0.0.1]/", "http://[::127.0.0.1]/", "http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/",
		"http://[2001:0:7f00:1::]/", "http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b::a9fe:a9fe]/",
		"http://[64:ff9b:1::10.0.0.1]/", "http://[0:0:0:0:0:ffff:10.0.0.1]/", "https://mapped.example/",
		"https://sixtofour.example/",
	)
	// Names without an address: the same words as for a private one.
	add(noAddress,
		"https://nowhere.example/", "https://empty.example/", "http://db/",
	)
	add(noName, "https://"+strings.Repeat("a.", 127)+"b/")
	// Another host than it seems.
	add(user,
		"http://public.example@127.0.0.1/", "http://public.example:80@10.0.0.1/", "http://user:secret@public.example/",
		"http://@public.example/", "http://127.0.0.1%2f@public.example/",
	)
	add("the URL has a fragment", "http://public.example#@127.0.0.1/", "http://public.example/#")
	add(noURL,
		"http://public.example\\@127.0.0.1/", "http://127.0.0.%31/", "http://127.0.0.1\t/",
		"http://public.example\r\nHost: evil/", "http://public.example/\nX-Injected: 1", "http://public.example\x00.evil/",
		"http://public.example /", " http://public.example/", "http://[::1/", "http://[127.0.0.1]/", "http://[v1.fe80]/",
		"http://[public.example]/", "http://::1/",
	)
	add(noHost, "http:\\\\127.0.0.1/")
	add(unusual, "http://evil.com,127.0.0.1/")
	add(noName,
		"http://a..example/", "http://.example/", "http://-a.example/", "http://*.example/", "http://$(id).example/",
		"http://\u200d.example/",
	)
	// Other schemes.
	add(scheme,
		"", "/hook", "//public.example/hook", "public.example", "file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL",
		"ftp://public.example/", "unix:///var/run/docker.sock", "javascript:alert(1)", "data:text/plain,x",
		"ws://public.example/",
	)
	add(noURL, "http+unix://%2fvar%2frun/")
	add(noHost,
		"http:public.example", "http:///hook", "http://:80/", "http://?@127.0.0.1",
	)
	// Ports.
	add(badPort, "http://public.example:0/", "http://public.example:65536/")
	add(noURL,
		"http://public.example:-80/", "http://public.example:80:80/", "http://public.example:http/",
	)
	add("webhooks may not be sent to port 22", "http://public.example:22/")
	add("webhooks may not be sent to port 25", "http://public.example:25/")
	add("the URL is longer than 2048 bytes", "https://public.example/"+strings.Repeat("a", web.MaxURL))
}

// ordinary are ports as a server allows them.
var ordinary = []web.Ports{{First: 80, Last: 80}, {First: 443, Last: 443}, {First: 1024, Last: 65535}}

func TestAttacksAreRefused(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(attacks), 60)
	g := web.NewGuard(web.GuardOptions{Resolver: serveZone(t, names()).Resolver, Ports: ordinary})
	for url, words := range attacks {
		t.Run(strconv.Quote(url[:min(len(url), 60)]), func(t *testing.T) {
			t.Parallel()
			_, err := g.Check(t.Context(), url)
			var refusal *web.GuardRefusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, words, refusal.Reason)
		})
	}
}

// A webhook may have been set under other rules. The dialer alone must refuse its address.
func TestNoAttackIsDialed(t *testing.T) {
	t.Parallel()
	g := web.NewGuard(web.GuardOptions{Resolver: serveZone(t, names()).Resolver, Ports: ordinary})
	client := &http.Client{Transport: &http.Transport{DialContext: g.DialContext, DisableKeepAlives: true}}
	tried := 0
	for url, words := range attacks {
		if words != noAddress && words != unusual && words != noLiteral && !strings.Contains(words, "may not be sent to port") {
			continue
		}
		if strings.Contains(url, "mixed.") || strings.Contains(url, "public.example:") || strings.Contains(url, "ffff:93.") {
			continue // their public address is another machine's
		}
		tried++
		t.Run(strconv.Quote(url), func(t *testing.T) {
			t.Parallel()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
			require.NoError(t, err)
			response, err := client.Do(request) //nolint:bodyclose // there is no body
			require.Error(t, err)
			require.Nil(t, response)
			var refusal *web.GuardRefusal
			var unresolved *net.DNSError
			require.True(t, errors.As(err, &refusal) || errors.As(err, &unresolved), "%v", err)
		})
	}
	require.Greater(t, tried, 60)
}

func TestOrdinaryURLsAreAccepted(t *testing.T) {
	t.Parallel()
	g := web.NewGuard(web.GuardOptions{Resolver: serveZone(t, names()).Resolver, Ports: ordinary})
	for url, want := range map[string][2]string{
		"https://public.example/hook":                         {"https://public.example/hook", "public.example:443"},
		"https://public.example/x?a HTTP/1.1&q=ä\"":           {"https://public.example/x?a%20HTTP/1.1&q=%C3%A4%22", "public.example:443"},
		"HTTPS://Public.Example:8443/a?b=c%20d":               {"https://public.example:8443/a?b=c%20d", "public.example:8443"},
		"http://public.example":                               {"http://public.example", "public.example:80"},
		"https://public.example./":                            {"https://public.example./", "public.example:443"},
		"https://both.example/":                               {"https://both.example/", "both.example:443"},
		"https://under_score.test/":                           {"https://under_score.test/", "under_score.test:443"},
		"https://B\u00fccher.com/":                            {"https://xn--bcher-kva.com/", "xn--bcher-kva.com:443"},
		"http://93.184.216.34:8080/":                          {"http://93.184.216.34:8080/", "93.184.216.34:8080"},
		"https://[2606:2800:21F:CB07::8b2c]:443/":             {"https://[2606:2800:21f:cb07::8b2c]:443/", "[2606:2800:21f:cb07::8b2c]:443"},
		"https://public.example:00443/":                       {"https://public.example:443/", "public.example:443"},
		"https://public.example/\u00e9?q=\u00e9":              {"https://public.example/%C3%A9?q=%C3%A9", "public.example:443"},
		"https://public.example.:443":                         {"https://public.example.:443", "public.example:443"},
		"http://public.example:/":                             {"http://public.example/", "public.example:80"},
		"http://xn--BCHER-kva.com":                            {"http://xn--bcher-kva.com", "xn--bcher-kva.com:80"},
		"http://\uff50\uff55\uff42\uff4c\uff49\uff43.example": {"http://public.example", "public.example:80"},
		"http://\uff19\uff13.184.216.34:080":                  {"http://93.184.216.34:80", "93.184.216.34:80"},
		"http://[2606:2800:21F:CB07:0:0::8b2c]":               {"http://[2606:2800:21f:cb07::8b2c]", "[2606:2800:21f:cb07::8b2c]:80"},
	} {
		to, err := g.Check(t.Context(), url)
		require.NoError(t, err, url)
		require.Equal(t, want, [2]string{to.URL.String(), to.Host})
	}
}

func TestOnlyTheDialChecksANameWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	z := serveZone(t, names())
	g := web.NewGuard(web.GuardOptions{Resolver: z.Resolver})
	z.silent.Store(true)
	_, err := g.Check(t.Context(), "https://loopback.example/")
	require.NoError(t, err)
	z.silent.Store(false)
	_, err = g.Check(t.Context(), "https://loopback.example/")
	require.Error(t, err)
}

func TestRules(t *testing.T) {
	t.Parallel()
	z := serveZone(t, names())
	check := func(url string, o web.GuardOptions) error {
		o.Resolver = z.Resolver
		_, err := web.NewGuard(o).Check(t.Context(), url)
		return err
	}
	require.NoError(t, check("http://public.example/", web.GuardOptions{}))
	require.EqualError(t, check("http://public.example/", web.GuardOptions{HTTPSOnly: true}), "the URL must begin with https://")
	require.NoError(t, check("http://public.example:22/", web.GuardOptions{}))
	require.EqualError(t, check("http://public.example/", web.GuardOptions{Ports: []web.Ports{{First: 443, Last: 443}}}), "webhooks may not be sent to port 80")
	require.NoError(t, check("https://public.example/", web.GuardOptions{Ports: []web.Ports{{First: 443, Last: 443}}}))

	lan := web.GuardOptions{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}}
	require.NoError(t, check("http://10.1.2.3/", lan))
	require.NoError(t, check("https://ten.example/", lan))
	require.NoError(t, check("https://ula.example/", lan))
	require.EqualError(t, check("http://10.2.0.1/", lan), noAddress)
	require.EqualError(t, check("http://[::ffff:10.1.2.3]/", lan), noAddress)

	translated := web.GuardOptions{Networks: []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}}
	require.NoError(t, check("http://[64:ff9b::93.184.216.34]/", translated))
	require.EqualError(t, check("http://[64:ff9b::10.0.0.1]/", translated), noAddress)

	// An internal network may have global addresses.
	for _, o := range []web.GuardOptions{
		{}, {AllowPrivate: true}, {Networks: []netip.Prefix{netip.MustParsePrefix("93.0.0.0/8"), netip.MustParsePrefix("64:ff9b::/96")}},
	} {
		o.Denied = []netip.Prefix{netip.MustParsePrefix("93.184.216.0/24"), netip.MustParsePrefix("2606:2800::/32"), netip.MustParsePrefix("10.9.0.0/16")}
		for _, url := range []string{
			"http://93.184.216.34/", "http://[2606:2800:21f:cb07::8b2c]/", "http://[64:ff9b::93.184.216.34]/", "http://[::ffff:93.184.216.34]/", "http://10.9.0.1/",
		} {
			require.EqualError(t, check(url, o), noAddress, url)
		}
		client := &http.Client{Transport: &http.Transport{DialContext: web.NewGuard(o).DialContext, DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://93.184.216.34:9/", http.NoBody)
		require.NoError(t, err)
		_, err = client.Do(request) //nolint:bodyclose // there is no body
		var refusal *web.GuardRefusal
		require.ErrorAs(t, err, &refusal, "the dialer checks it, too")
	}

	asked := z.asked.Load()
	own := web.GuardOptions{AllowPrivate: true}
	for _, url := range []string{
		"http://127.0.0.1:1/", "http://[::1]/", "http://192.168.1.1/", "http://[fd00::1]/", "http://100.64.0.1/",
		"http://localhost/", "http://nowhere.example/", "http://public.example/",
	} {
		require.NoError(t, check(url, own), url)
	}
	require.Equal(t, asked, z.asked.Load(), "only the dial checks names")
	for _, url := range []string{
		"http://169.254.169.254/", "http://[fe80::1]/", "http://224.0.0.1/", "http://0.0.0.0/",
		"http://168.63.129.16/", "http://100.100.100.200/", "http://[fd00:ec2::254]/", "http://[fd20:ce::254]/",
	} {
		require.EqualError(t, check(url, own), noAddress, url)
	}
	require.NoError(t, check("http://100.100.100.200/", web.GuardOptions{Networks: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10")}}))
	require.EqualError(t, check("http://2130706433/", own), unusual)
}

// receiver counts requests at an address of its own.
func receiver(t *testing.T, address string) (port string, hits *atomic.Int64) {
	t.Helper()
	hits = &atomic.Int64{}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, s.Listener.Close())
	s.Listener = l
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			hits.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port, hits
}

func TestRebinding(t *testing.T) {
	t.Parallel()
	// 127.0.0.2 plays the public address, 127.0.0.3 a private one.
	port, good := receiver(t, "127.0.0.2:0")
	_, bad := receiver(t, "127.0.0.3:"+port)
	z := serveZone(t, map[string][][]string{
		"rebind.example": {{"127.0.0.2"}, {"127.0.0.3"}},
		"late.example":   {{"127.0.0.2"}, {"127.0.0.2"}, {"127.0.0.3"}},
		"both.example":   {{"127.0.0.3", "127.0.0.2"}},
	})
	g := web.NewGuard(web.GuardOptions{Resolver: z.Resolver, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
	post := func(host string) error {
		client := &http.Client{Transport: &http.Transport{DialContext: g.DialContext, DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+":"+port, http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	var refusal *web.GuardRefusal

	_, err := g.Check(t.Context(), "http://rebind.example:"+port)
	require.NoError(t, err)
	require.ErrorAs(t, post("rebind.example"), &refusal)
	require.Equal(t, int64(0), good.Load())

	_, err = g.Check(t.Context(), "http://late.example:"+port)
	require.NoError(t, err)
	require.NoError(t, post("late.example"))
	require.ErrorAs(t, post("late.example"), &refusal)
	require.Equal(t, int64(1), good.Load())

	// Of several addresses the guard connects only to the allowed one.
	_, err = g.Check(t.Context(), "http://both.example:"+port)
	require.EqualError(t, err, noAddress)
	require.NoError(t, post("both.example"))
	require.Equal(t, int64(2), good.Load())
	require.Equal(t, int64(0), bad.Load())
}
