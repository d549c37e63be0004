// Package console serves the web console, a page that shows and acts through the admin API. Its sources are in console/, and
// `make console` builds them into dist/, which the binary embeds. Beside it the package serves the documents.
package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// Path is where the console is, with the slash at its end.
const Path = "/console/"

//go:embed all:dist
var built embed.FS

// policy allows what the page needs and no more: an agent's output can run nothing, load nothing and frame nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; " +
	"media-src 'self' blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const missing = "<!doctype html><title>Holdfast</title><p>This binary was built without the console. Run <code>make console build</code>."

// file is a built file, and the same compressed.
type file struct {
	media       string
	plain, gzip []byte
	immutable   bool // its name has a hash of its content
}

// Handler serves the files of the console. They hold no data, so everybody may have them: the admin API asks who you are. A
// path without a file is a page of the console, and gets its index.
func Handler() (http.Handler, error) {
	dist, err := fs.Sub(built, "dist")
	if err != nil {
		return nil, err
	}
	return handler(dist)
}

func handler(dist fs.FS) (http.Handler, error) {
	files := map[string]*file{}
	err := fs.WalkDir(dist, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(dist, name)
		if err != nil {
			return err
		}
		files[strings.TrimSuffix(name, ".gz")], err = newFile(name, raw)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("files of the console: %w", err)
	}
	index := files["index.html"]
	if index == nil { // a development build
		if index, err = newFile("index.html", []byte(missing)); err != nil {
			return nil, err
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, Path)
		f := files[name]
		if f == nil && !strings.HasPrefix(name, "assets/") && path.Ext(name) != ".js" {
			f = index
		}
		f.serve(w, r)
	}), nil
}

func newFile(name string, raw []byte) (*file, error) {
	name, compressed := strings.CutSuffix(name, ".gz")
	f := &file{media: mediaOf(name), plain: raw, immutable: strings.HasPrefix(name, "assets/")}
	if compressed {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err == nil {
			f.gzip = raw
			f.plain, err = io.ReadAll(z)
		}
		return f, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() < len(raw) {
		f.gzip = b.Bytes()
	}
	return f, nil
}

func mediaOf(name string) string {
	switch path.Ext(name) { // a machine may lack a table of media types, or have one of its own
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".yaml":
		return "text/plain; charset=utf-8" // a browser shows it
	default:
		return mime.TypeByExtension(path.Ext(name))
	}
}

// writeTimeout bounds how long a browser may take to read a file.
const writeTimeout = time.Minute

// serve answers with the file. A nil one does not exist.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	protect(h)
	if f == nil {
		h.Set("Cache-Control", "no-store")
		http.Error(w, "The console has no such file; a page that was open during an upgrade must be loaded again.", http.StatusNotFound)
		return
	}
	// An upgrade must show at once, so a browser asks for the index each time.
	h.Set("Cache-Control", "no-cache")
	if f.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", f.media)
	body := f.plain
	if f.gzip != nil {
		h.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body = f.gzip
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
}

func acceptsGzip(header string) bool {
	for one := range strings.SplitSeq(header, ",") {
		name, q, _ := strings.Cut(one, ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.ReplaceAll(q, " ", "") != "q=0"
		}
	}
	return false
}
