// Package types has what generated bindings say of values that may be missing and of calls that may fail.
package types

// The cases of an Option.
const (
	OptionNone = 0
	OptionSome = 1
)

// An Option is a value or none.
type Option[T any] struct {
	some  bool
	value T
}

// Some is an option with a value.
func Some[T any](value T) Option[T] { return Option[T]{some: true, value: value} }

// None is an option without one.
func None[T any]() Option[T] { return Option[T]{} }

// Tag says which of the cases it is.
func (o Option[T]) Tag() uint8 {
	if o.some {
		return OptionSome
	}
	return OptionNone
}

// Some gives the value; it panics if there is none.
func (o Option[T]) Some() T {
	if !o.some {
		panic("an option without a value was asked for it")
	}
	return o.value
}

// The cases of a Result.
const (
	ResultOk  = 0
	ResultErr = 1
)

// A Result is what a call returns or why it failed.
type Result[T, E any] struct {
	failed bool
	value  T
	err    E
}

// Ok is the result of a call that did not fail.
func Ok[T, E any](value T) Result[T, E] { return Result[T, E]{value: value} }

// Err is the result of a call that failed.
func Err[T, E any](err E) Result[T, E] { return Result[T, E]{failed: true, err: err} }

// Tag says which of the cases it is.
func (r Result[T, E]) Tag() uint8 {
	if r.failed {
		return ResultErr
	}
	return ResultOk
}

// Ok gives the value of a call that did not fail.
func (r Result[T, E]) Ok() T { return r.value }

// Err gives the reason of one that did.
func (r Result[T, E]) Err() E { return r.err }

// Unit is the value of a call that returns nothing.
type Unit struct{}
