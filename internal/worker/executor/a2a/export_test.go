package a2a

import (
	"net/http"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Over has a front call its agent with a transport.
func (f *Front) Over(transport http.RoundTripper) {
	f.transport.HTTP = &http.Client{Transport: transport, CheckRedirect: web.NoRedirects}
}
