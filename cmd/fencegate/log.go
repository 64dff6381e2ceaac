package main

import (
	"io"
	"log/slog"

	"github.com/fencegate/fencegate/internal/logging"
)

// logFlags say what is logged, and how.
type logFlags struct {
	LogLevel  string `help:"What to log at least: debug (every request), info, warn or error." env:"FENCEGATE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error"`
	LogFormat string `help:"json or text." env:"FENCEGATE_LOG_FORMAT" default:"text" enum:"json,text"`
}

func (f logFlags) logger(out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // one of the enum
	return logging.New(out, level, f.LogFormat == "json")
}
