package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/fencegate/fencegate/internal/logging"
)

// logFlags say what is logged, and how.
type logFlags struct {
	LogLevel  string `help:"What to log at least: debug (every request), info, warn or error." env:"FENCEGATE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error"`
	LogFormat string `help:"json or text." env:"FENCEGATE_LOG_FORMAT" default:"text" enum:"json,text"`
}

func (f logFlags) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	return logging.New(out, level, f.LogFormat == "json"), nil
}
