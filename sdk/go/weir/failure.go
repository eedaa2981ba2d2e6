package weir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A FailureKind is what the host does about a call that failed.
type FailureKind uint8

const (
	// KindRetry: the same call, later.
	KindRetry FailureKind = iota
	// KindInvalid: nothing, a person has to change the configuration or the state.
	KindInvalid
	// KindFatal: start over from the last checkpoint.
	KindFatal
)

func (k FailureKind) String() string {
	switch k {
	case KindRetry:
		return "retry"
	case KindInvalid:
		return "invalid"
	default:
		return "fatal"
	}
}

// A Failure is why a call failed and what the host is to do about it.
type Failure struct {
	Kind  FailureKind
	cause error
}

func (f *Failure) Error() string { return f.cause.Error() }

// Unwrap gives what was wrapped by %w.
func (f *Failure) Unwrap() error { return errors.Unwrap(f.cause) }

// Retry is a failure after which the same call is made again, later. Only if nothing has changed in the operator.
func Retry(format string, args ...any) error {
	return &Failure{KindRetry, fmt.Errorf(format, args...)}
}

// Invalid is a failure about which a person has to do something: the configuration or the state is not acceptable.
func Invalid(format string, args ...any) error {
	return &Failure{KindInvalid, fmt.Errorf(format, args...)}
}

// Fatal is a failure after which the host starts over from the last checkpoint.
func Fatal(format string, args ...any) error {
	return &Failure{KindFatal, fmt.Errorf(format, args...)}
}

// KindOf is the kind of an error: that of the [Failure] it is or wraps, else the one given.
func KindOf(err error, otherwise FailureKind) FailureKind {
	if failure, ok := errors.AsType[*Failure](err); ok {
		return failure.Kind
	}
	return otherwise
}

// Config parses the configuration that [Plugin].Open is given into what into points to, as encoding/json does, but refuses members
// that the type does not have: so a typing error does not go unnoticed. What is there before are the defaults.
func Config(config string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(config))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return Invalid("the configuration is not acceptable: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Invalid("the configuration is not acceptable: there is something after the JSON object, at byte %d", decoder.InputOffset())
	}
	return nil
}
