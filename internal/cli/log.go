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

// newLogger writes JSON, or coloured text on a terminal.
func newLogger(w io.Writer, cfg config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo
	}
	terminal := isTerminal(w)
	if cfg.Format == config.LogText || (cfg.Format == config.LogAuto && terminal) {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !terminal}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
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
