package weir

import (
	"fmt"

	"github.com/weir-stream/weir/sdk/go/internal/host"
)

// A Level is how much a message matters.
type Level uint8

// The levels of the log.
const (
	Trace Level = iota
	Debug
	Info
	Warn
	Error
)

// Logf logs a line, made as by fmt.Sprintf and only where it would be kept. The host adds job, node, subtask and time, cuts a line at
// 4 KiB and drops what is too much for people to read.
func Logf(level Level, format string, args ...any) {
	if host := host.For("Logf"); host.LogEnabled(uint8(level)) {
		host.Log(uint8(level), fmt.Sprintf(format, args...))
	}
}

// LogEnabled says whether a message of this level would be kept: ask before you spend time on making one. Do not let the answer
// change anything else.
func LogEnabled(level Level) bool { return host.For("LogEnabled").LogEnabled(uint8(level)) }
