package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/text/width"
)

// forPerson reports whether a table is for somebody who looks at a terminal. Programs get every column, uncut and without colours.
func (c *command) forPerson() bool { return c.output == outputTable && isTerminal(c.Out) }

// dumb reports whether a terminal shows characters only.
func (c *command) dumb() bool { return c.env("TERM") == "dumb" }

const usualWidth = 80

// widthOf returns the columns of a terminal.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return usualWidth
}

const (
	gap      = "  "
	least    = 8 // of a column that is cut
	shownEnd = 8 // characters of an id, as in the console
)

// screen writes a table for a person: without empty columns, with ids by their ends and times as ages, and cut to the width of the
// terminal.
func (c *command) screen(rows [][]string) error {
	now, widths := time.Now(), make([]int, len(rows[0]))
	cells := make([][]string, len(rows))
	for i, row := range rows {
		for j, text := range row {
			text = oneLine(printable(text))
			if i > 0 {
				text = shorter(text, now)
			}
			cells[i] = append(cells[i], text)
			if text != "" && i > 0 {
				widths[j] = max(widths[j], wide(text), wide(rows[0][j]))
			}
		}
	}
	for most := widthOf(c.Out); ; {
		total, widest := -len(gap), 0
		for j, w := range widths {
			if w > 0 {
				total += w + len(gap)
			}
			if w > widths[widest] {
				widest = j
			}
		}
		if total <= most {
			break
		}
		if widths[widest] > least {
			widths[widest]--
		} else {
			widths = widths[:len(widths)-1]
		}
	}
	p := &printer{w: c.Out}
	for i, row := range cells {
		var line strings.Builder
		for j, w := range widths {
			if w == 0 {
				continue
			}
			text := cut(row[j], w)
			pad := strings.Repeat(" ", w-wide(text)) + gap
			if i > 0 && slices.Contains([]string{"STATE", "HEALTH", "OUTCOME", "CLASS"}, rows[0][j]) {
				text = c.painted(text)
			}
			line.WriteString(text + pad)
		}
		p.raw(strings.TrimRight(line.String(), " ") + "\n")
	}
	return p.err
}

var uuids = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// shorter writes an id by its end, and a time as an age.
func shorter(text string, now time.Time) string {
	if uuids.MatchString(text) {
		return "…" + text[len(text)-shownEnd:]
	}
	for _, layout := range []string{minutes, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return ago(now.Sub(t))
		}
	}
	return text
}

// ago writes an age with one unit.
func ago(d time.Duration) string {
	before := ""
	if d < 0 {
		before, d = "in ", -d
	}
	for _, u := range []struct {
		name   string
		length time.Duration
		from   time.Duration
	}{{"d", 24 * time.Hour, 48 * time.Hour}, {"h", time.Hour, time.Hour}, {"m", time.Minute, time.Minute}} {
		if d >= u.from {
			return fmt.Sprintf("%s%d%s", before, d/u.length, u.name)
		}
	}
	return fmt.Sprintf("%s%ds", before, d/time.Second)
}

// wide counts the columns of a text on a terminal.
func wide(s string) (n int) {
	for _, r := range s {
		n += columns(r)
	}
	return n
}

func columns(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut shortens a text to a number of columns.
func cut(s string, most int) string {
	if wide(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += columns(r); n > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// colours are those of states, in the numbers of terminals.
var colours = map[int][]string{
	31: {"failed", "rejected", "failing", "fail", "away", "no worker", "disabled", "gone", "revoked", "expired"},
	32: {"completed", "healthy", "ok", "connected", "valid", "done", "delivered"},
	33: {"input-required", "auth-required", "warn", "draining", "retired", "due", "canceled", "canceling"},
	36: {"working", "running", "delivering"},
}

// painted colours the name of a state on a terminal.
func (c *command) painted(word string) string {
	for number, words := range colours {
		if slices.Contains(words, word) && isTerminal(c.Out) && !c.dumb() && c.env("NO_COLOR") == "" {
			return fmt.Sprintf("\x1b[%dm%s\x1b[0m", number, word)
		}
	}
	return word
}

const (
	// mute is how long work may take without a word.
	mute      = 2 * time.Second
	eraseLine = "\r\x1b[K"
	newScreen = "\x1b[H\x1b[J"
)

// during shows a line on a terminal while work takes long. say changes its text, and stop removes it.
func (c *command) during(text string) (say func(string), stop func()) {
	if !isTerminal(c.Err) || c.dumb() {
		return func(string) {}, func() {}
	}
	var now atomic.Pointer[string]
	now.Store(&text)
	ended, done, began, ticks := make(chan struct{}), make(chan struct{}), time.Now(), time.NewTicker(time.Second)
	go func() {
		defer close(done)
		for {
			select {
			case <-ticks.C:
				if took := time.Since(began).Round(time.Second); took >= mute {
					_, _ = fmt.Fprintf(c.Err, "%s%s (%s)", eraseLine, cut(printable(*now.Load()), widthOf(c.Err)-least), took)
				}
			case <-ended:
				return
			}
		}
	}()
	return func(s string) { now.Store(&s) }, func() {
		ticks.Stop()
		close(ended)
		<-done
		if time.Since(began) >= mute {
			_, _ = fmt.Fprint(c.Err, eraseLine)
		}
	}
}

// moment is the value of a flag for a time: how long ago it was, or when.
type moment struct{ time.Time }

func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.UTC().Format(time.RFC3339Nano)
}

// Type implements pflag.Value.
func (m *moment) Type() string { return "time" }

// Set implements pflag.Value.
func (m *moment) Set(s string) error {
	d, notDuration := time.ParseDuration(s)
	if notDuration == nil && d > 0 {
		m.Time = time.Now().Add(-d)
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("%q is not a time; write how long ago, such as 24h, or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z", s)
}
