package web

import (
	"net/http"
	"path"
	"strings"
)

// Routes are the operations of one of our own APIs. A path or a method that is unknown is a problem.
type Routes struct {
	mux      *http.ServeMux
	document string
	fail     func(http.ResponseWriter, *http.Request, error)
}

// NewRoutes makes Routes. document describes them; fail answers with an error.
func NewRoutes(document string, fail func(http.ResponseWriter, *http.Request, error)) *Routes {
	t := &Routes{http.NewServeMux(), document, fail}
	t.mux.HandleFunc(everything, t.unknown)
	return t
}

// everything is the pattern of what has no route.
const everything = "/"

// Handle adds an operation. The pattern is one of http.ServeMux, with a method.
func (t *Routes) Handle(pattern string, do func(http.ResponseWriter, *http.Request) error) {
	t.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			t.fail(w, r, err)
		}
	})
}

// ServeHTTP implements http.Handler. http.ServeMux would redirect other spellings of a path, and a redirected POST loses its body.
func (t *Routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if clean(r) {
		t.mux.ServeHTTP(w, r)
	} else {
		t.unknown(w, r)
	}
}

func clean(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return path.Clean(p) == strings.TrimSuffix(p, "/")
}

// unknown refuses a request without a route, and says which methods its path has.
func (t *Routes) unknown(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPost, http.MethodPut} {
		other := *r
		other.Method = method
		if _, pattern := t.mux.Handler(&other); clean(r) && pattern != everything {
			allowed = append(allowed, method)
		}
	}
	p := Refuse(http.StatusNotFound, ReasonNotFound, "", t.document+" lists the paths and their methods")
	if len(allowed) > 0 {
		p = Refuse(http.StatusMethodNotAllowed, ReasonMethod, "", p.Detail)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
	}
	t.fail(w, r, p)
}
