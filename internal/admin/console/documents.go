package console

import (
	"archive/zip"
	"bytes"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// DocumentsPath is where the documents are, with the slash at its end.
const DocumentsPath = "/docs/"

// The folder is empty in a development build: `make site` fills it.
//
//go:embed all:site
var site embed.FS

const noDocuments = "This binary was built without the documents. Run make site build, or read docs/ of the repository.\n"

// Documents serves the site of docs/, as open as the console's files. It copies each file compressed out of the archive, which
// stays in the pages of the binary.
func Documents() (http.Handler, error) {
	archive, err := site.ReadFile("site/site.zip")
	if errors.Is(err, fs.ErrNotExist) { // a development build
		return documents(nil), nil
	}
	if err != nil {
		return nil, err
	}
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, fmt.Errorf("documents: %w", err)
	}
	return documents(z.File), nil
}

// HasDocuments reports whether this binary has them.
func HasDocuments() bool {
	_, err := fs.Stat(site, "site/site.zip")
	return err == nil
}

func documents(archived []*zip.File) http.Handler {
	files := map[string]*zip.File{}
	for _, f := range archived {
		files[f.Name] = f
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, DocumentsPath)
		if name == "" || strings.HasSuffix(name, "/") {
			name += "index.html"
		}
		h := w.Header()
		protect(h)
		f := files[name]
		if f == nil {
			text := "The documents have no such page. Start at " + DocumentsPath + "\n"
			if len(files) == 0 {
				text = noDocuments
			}
			h.Set("Cache-Control", "no-store")
			http.Error(w, text, http.StatusNotFound)
			return
		}
		tag := fmt.Sprintf(`"%08x"`, f.CRC32)
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		h.Set("Vary", "Accept-Encoding")
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", mediaOf(name))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		send(w, r, f)
	})
}

// send writes a file of the archive. It is stored as DEFLATE: with the frame of RFC 1952 around it, that is gzip.
func send(w http.ResponseWriter, r *http.Request, f *zip.File) {
	h, open, length := w.Header(), f.Open, f.UncompressedSize64
	var begin, end []byte
	if f.Method == zip.Deflate && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		open = func() (io.ReadCloser, error) { raw, err := f.OpenRaw(); return io.NopCloser(raw), err }
		begin = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}
		end = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, f.CRC32), uint32(f.UncompressedSize64))
		length = f.CompressedSize64 + uint64(len(begin)+len(end))
	}
	content, err := open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = content.Close() }()
	h.Set("Content-Length", strconv.FormatUint(length, 10))
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, io.MultiReader(bytes.NewReader(begin), content, bytes.NewReader(end)))
	}
}
