package client

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
)

// ReadHeaders returns the headers that the texts of a flag give. A text that begins with @ names a file with a header on each line;
// @- is stdin.
func ReadHeaders(stdin io.Reader, texts []string) (http.Header, error) {
	header := http.Header{}
	add := func(text string) bool {
		name, value, ok := strings.Cut(text, ":")
		if ok {
			header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
		return ok
	}
	for _, text := range texts {
		path, isFile := strings.CutPrefix(text, "@")
		if !isFile {
			if !add(text) {
				return nil, fmt.Errorf("%q is not a header; write \"Name: value\"", text)
			}
			continue
		}
		var raw []byte
		var err error
		if path == "-" {
			raw, err = io.ReadAll(io.LimitReader(stdin, 1<<20))
		} else {
			raw, err = os.ReadFile(path)
		}
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(string(raw), "\n") {
			line = strings.TrimSpace(line)
			if line != "" && line[0] != '#' && !add(line) { // it may be a secret: do not show it
				return nil, fmt.Errorf("line %d of %s is not a header; write \"Name: value\"", i+1, path)
			}
		}
	}
	return header, nil
}

// WarnOfSecrets calls warn for each text of a flag of ReadHeaders that shows a credential on the command line.
func WarnOfSecrets(flag string, texts []string, warn func(format string, args ...any)) {
	for _, text := range texts {
		name, _, _ := strings.Cut(text, ":")
		if slices.Contains(secretHeaders, strings.ToLower(strings.TrimSpace(name))) {
			warn("Other users of this machine see the header %s in the list of processes; write it to a file, and use --%s @FILE.", name, flag)
		}
	}
}

// secretHeaders are the names of headers that carry credentials.
var secretHeaders = []string{"authorization", "proxy-authorization", "cookie", "x-api-key"}
