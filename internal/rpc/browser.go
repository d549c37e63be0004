package rpc

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
)

// CORS says which web pages of other origins may use the server from within a browser.
type CORS struct {
	Origins []string      // as scheme://host[:port], or * for any; none: no page may
	Headers []string      // that pages may send beside those of A2A
	MaxAge  time.Duration // for which browsers may keep the answer
}

// Any reports whether pages of every origin may use the server.
func (c *CORS) Any() bool { return slices.Contains(c.Origins, "*") }

// secured gives every answer the headers that keep it out of caches and from being taken for something else. Who
// answers with what may be kept says so.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// cors answers what browsers ask before they let a page send its request, and tells them what the page may see.
func cors(c CORS) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		// A plain OPTIONS asks what a path has.
		Skipper: func(e echo.Context) bool {
			r := e.Request()
			return r.Method == http.MethodOptions && r.Header.Get(echo.HeaderAccessControlRequestMethod) == ""
		},
		AllowOrigins: c.Origins,
		AllowMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete},
		AllowHeaders: append([]string{
			"Accept", "Authorization", "Content-Type", "If-None-Match", versionHeader, "A2A-Extensions", "X-A2A-Extensions",
			"X-API-Key", operation.IdempotencyKey, "Last-Event-ID", "Prefer",
		}, c.Headers...),
		ExposeHeaders: []string{
			"A2A-Extensions", "X-A2A-Extensions", "ETag", "Retry-After", "WWW-Authenticate",
		},
		MaxAge: int(c.MaxAge.Seconds()),
	})
}

// sameOrigin refuses what a page of an origin that is not allowed makes a browser send without asking first. CORS keeps
// such a page from reading the answer, and not from having its effect; and a server that only this machine reaches is
// reached by every page that is open on it.
func sameOrigin(c CORS, publicURL string) echo.MiddlewareFunc {
	p := http.NewCrossOriginProtection()
	for _, origin := range c.Origins {
		if err := p.AddTrustedOrigin(origin); err != nil {
			panic("rpc: an origin that was not checked: " + err.Error())
		}
	}
	// A proxy may have put another Host in place of the one that the browser knows.
	if u, err := url.Parse(publicURL); err == nil && u.Host != "" {
		_ = p.AddTrustedOrigin(u.Scheme + "://" + u.Host) // made of a URL
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if p.Check(c.Request()) != nil {
				return echo.NewHTTPError(http.StatusForbidden, "pages of other origins may not use this server, unless its cors.allowed_origins names theirs")
			}
			return next(c)
		}
	}
}

// ownHost refuses requests for another host than this machine, or that of publicURL. Who owns a name can let it lead
// here once a browser has a page of it (DNS rebinding): in the browser's eyes that page and this server then are of one
// origin, and only the name that the browser asks for tells.
func ownHost(publicURL string) echo.MiddlewareFunc {
	public := ""
	if u, err := url.Parse(publicURL); err == nil {
		public = hostname(u.Host)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if host := c.Request().Host; OfThisMachine(host) || hostname(host) == public {
				return next(c)
			}
			return echo.NewHTTPError(http.StatusForbidden,
				"this server asks nobody who they are and is for its own machine: call it by an address, localhost, or the host of its public_url")
		}
	}
}

// OfThisMachine reports whether the host that a request names cannot lead from elsewhere to here: it is an address,
// localhost, or none.
func OfThisMachine(host string) bool {
	host = hostname(host)
	_, noAddress := netip.ParseAddr(host) // an address leads nowhere else
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || noAddress == nil
}

// hostname is a host without its port, in the spelling to compare.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
