package rawjson

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxName bounds how much of a client's member name a message shows.
const maxName = 64

// Path returns the position of a decoder in readable form, such as params.message.parts[0].text.
// ptr is where an error occurred. If it is empty, the path is that of the last value read.
func Path(d *jsontext.Decoder, ptr jsontext.Pointer) string {
	if ptr == "" {
		ptr = d.StackPointer()
	}
	var b strings.Builder
	level := 0
	for token := range ptr.Tokens() {
		level++
		if level <= d.StackDepth() {
			if kind, _ := d.StackIndex(level); kind == jsontext.KindBeginArray {
				b.WriteString("[" + token + "]")
				continue
			}
		}
		writeName(&b, token)
	}
	return b.String()
}

// Join appends a member to the path of the object that contains it.
func Join(path, member string) string {
	if path == "" {
		return member
	}
	return path + "." + member
}

func writeName(b *strings.Builder, name string) {
	if len(name) > maxName {
		cut := maxName
		for !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "…"
	}
	if strings.ContainsFunc(name, special) || name == "" {
		b.WriteString("[" + strconv.Quote(name) + "]")
		return
	}
	if b.Len() > 0 {
		b.WriteByte('.')
	}
	b.WriteString(name)
}

// special reports characters that would make the path or its line ambiguous.
func special(r rune) bool {
	return r <= ' ' || r == '.' || r == '[' || r == ']' || r == '"' || !strconv.IsPrint(r)
}
