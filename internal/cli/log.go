package cli

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

// newLogger writes JSON, or coloured text on a terminal. Durations read as 112.5ms in both.
func newLogger(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo
	}
	terminal := isTerminal(w)
	if cfg.Format == config.LogText || (cfg.Format == config.LogAuto && terminal) {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !terminal, ReplaceAttr: readableDuration}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: readableDuration}))
}

// readableDuration writes a duration as text with four digits, such as 112.5ms, because slog's
// JSON has nanoseconds.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(roundDuration(a.Value.Duration()).String())
	}
	return a
}

// roundDuration keeps four digits of d, and whole seconds of a longer one.
func roundDuration(d time.Duration) time.Duration {
	unit := time.Nanosecond
	for d.Abs()/unit >= 10_000 && unit < time.Second {
		unit *= 10
	}
	return d.Round(unit)
}

// newQuietLogger is for verbs that print output: by default they log only errors.
func newQuietLogger(w io.Writer, cfg config.Log) *slog.Logger {
	if cfg.Level == config.Default().Log.Level {
		cfg.Level = slog.LevelWarn.String()
	}
	return newLogger(w, cfg)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
