package login

import (
	"net/http"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Origins knows which pages may write.
type Origins struct{ protection *http.CrossOriginProtection }

// NewOrigins makes Origins. publicURL is the address of the page in browsers, if it is not that of the requests.
func NewOrigins(publicURL string) (*Origins, error) {
	o := &Origins{http.NewCrossOriginProtection()}
	if publicURL == "" {
		return o, nil
	}
	return o, o.protection.AddTrustedOrigin(publicURL)
}

// Check refuses a write that a page of another origin makes a browser send. cookie says that a cookie is the credential: then the
// browser must say where the write comes from, because it sends the cookie by itself.
func (o *Origins) Check(r *http.Request, cookie bool) error {
	if o.protection.Check(r) != nil {
		return &task.Error{Kind: task.Forbidden, Field: "Origin", Msg: "Origin: is another one than that of this address"}
	}
	if cookie && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return &task.Error{Kind: task.Forbidden, Field: "Origin", Msg: "Origin: is missing, and a session needs it; scripts use an API key"}
	}
	return nil
}
