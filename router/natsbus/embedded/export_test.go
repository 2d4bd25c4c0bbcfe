package embedded

import "log/slog"

// Logger is how the server logs.
func Logger(log *slog.Logger) interface {
	Noticef(format string, v ...any)
	Warnf(format string, v ...any)
	Errorf(format string, v ...any)
} {
	return &logger{log: log}
}
