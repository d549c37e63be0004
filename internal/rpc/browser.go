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

	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
)

// CORS says which web pages of other origins may use the server from a browser.
type CORS struct {
	Origins []string      // scheme://host[:port], or * for any; empty: no page may
	Headers []string      // headers that pages may send besides those of A2A
	MaxAge  time.Duration // how long browsers may cache the preflight answer
}

// Any reports whether pages of every origin may use the server.
func (c *CORS) Any() bool { return slices.Contains(c.Origins, "*") }

// secured adds headers to every answer that prevent caching, content sniffing, and http where there is https. Handlers whose
// answers may be cached set their own Cache-Control.
func (s *Server) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if s.draining.Load() {
			h.Set("Connection", "close")
		}
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		// A browser would also apply it to every other server on localhost.
		if r.TLS != nil && !strings.HasPrefix(r.Host, "localhost") {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// cors answers preflight requests, and tells browsers which headers a page may read.
func cors(c CORS) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		// An OPTIONS request that is no preflight asks which methods a path has.
		Skipper: func(e echo.Context) bool {
			r := e.Request()
			return r.Method == http.MethodOptions && r.Header.Get(echo.HeaderAccessControlRequestMethod) == ""
		},
		AllowOrigins: c.Origins,
		AllowMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete},
		AllowHeaders: append([]string{
			"Accept", "Authorization", "Content-Type", "If-None-Match", versionHeader, "A2A-Extensions", "X-A2A-Extensions",
			"X-API-Key", dispatch.IdempotencyKey, "Last-Event-ID", "Prefer",
		}, c.Headers...),
		ExposeHeaders: []string{
			"A2A-Extensions", "X-A2A-Extensions", "ETag", "Retry-After", "WWW-Authenticate",
		},
		MaxAge: int(c.MaxAge.Seconds()),
	})
}

// foreign tells the operator of pages that may not use the server. Their users see an error without a
// reason, since a browser hides the answer from such a page.
func (s *Server) foreign(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if origin := r.Header.Get("Origin"); origin != "" && !s.mayUse(origin, r.Host) {
			if s.opt.OriginRefused != nil {
				s.opt.OriginRefused()
			}
			now, last := time.Now().UnixNano(), s.originLogged.Load()
			if now-last > int64(originEvery) && s.originLogged.CompareAndSwap(last, now) {
				s.opt.Log.Warn("refused a page of another origin; cors.allowed_origins can allow it",
					"origin", shortened(origin), "path", shortened(r.URL.Path))
			}
		}
		return next(c)
	}
}

// mayUse reports whether pages of an origin may use the server at host.
func (s *Server) mayUse(origin, host string) bool {
	if s.opt.CORS.Any() || slices.Contains(s.opt.CORS.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (u.Host == host || strings.HasPrefix(s.opt.PublicURL+"/", origin+"/"))
}

// originEvery is the shortest time between log lines about refused origins. The metric counts them
// all.
const originEvery = time.Minute

// shortened bounds what a client can write into the log.
func shortened(s string) string { return s[:min(len(s), 200)] }

// sameOrigin refuses requests that a page of a foreign origin makes a browser send without a
// preflight. CORS keeps such a page from reading the answer, but the request still takes effect.
// Every page open on this machine can reach a server that only this machine reaches.
func sameOrigin(c CORS, publicURL string) echo.MiddlewareFunc {
	p := http.NewCrossOriginProtection()
	for _, origin := range c.Origins {
		if err := p.AddTrustedOrigin(origin); err != nil {
			panic("rpc: invalid CORS origin: " + err.Error())
		}
	}
	// A proxy may have replaced the Host that the browser knows.
	if u, err := url.Parse(publicURL); err == nil && u.Host != "" {
		_ = p.AddTrustedOrigin(u.Scheme + "://" + u.Host) // a valid origin: it is made of a parsed URL
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if p.Check(c.Request()) != nil {
				return echo.NewHTTPError(http.StatusForbidden, "pages of this origin may not use the server; an operator can allow them with cors.allowed_origins")
			}
			return next(c)
		}
	}
}

// ownHost refuses requests for hosts other than this machine and the host of publicURL. The owner
// of a name can point it here after a browser has loaded a page of that name (DNS rebinding). The
// browser then takes that page and this server for one origin. Only the host in the request shows
// the difference.
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
				"this server has no authentication and serves only its own machine; call it by an IP address, localhost, or the host of its public_url")
		}
	}
}

// OfThisMachine reports whether DNS rebinding cannot forge the host of a request: it is an address,
// localhost, or empty.
func OfThisMachine(host string) bool {
	host = hostname(host)
	_, noAddress := netip.ParseAddr(host) // DNS cannot redirect an address
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || noAddress == nil
}

// hostname returns a host without its port, in canonical form.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
