package weir

// A Plugin is what is exported: what it is, and how to make an operator that works.
type Plugin struct {
	Descriptor Descriptor
	// Open makes an operator that is ready to work. The configuration is a JSON object, {} where the pipeline gives none: see [Config].
	// An error that is no [Failure] counts as [Invalid].
	Open func(config string, task TaskInfo) (Operator, error)
}

// A Descriptor says what a plugin is.
type Descriptor struct {
	// Name is 1 to 63 lower-case letters, digits and hyphens, the first not a hyphen.
	Name string
	// Version is a semantic version.
	Version string
	// Summary is one line for people; it may be empty.
	Summary string
	// Inputs are at least one; a port's number is its place in the list.
	Inputs []Port
	// Outputs may be none, for an operator that only watches.
	Outputs []Port
	// State is what kind of state it has.
	State StateKind
	// StateVersion is the version of the format of its state, from 1: zero says 1 where there is state. Raise it when the format changes.
	StateVersion uint32
	// OldestStateVersion is the oldest format that Restore still reads; zero says StateVersion.
	OldestStateVersion uint32
	// ConfigSchema is a JSON Schema (2020-12) for the configuration; it may be empty.
	ConfigSchema string
	// Attributes are anything else; usually none.
	Attributes []Attribute
}

// A Port is an input or an output.
type Port struct {
	// Name is by which pipelines name it: 1 to 63 lower-case letters, digits and hyphens, the first not a hyphen.
	Name string
	// Summary is one line for people; it may be empty.
	Summary string
	// Keyed says of an input that records must come partitioned by key, with hashes; of an output that every record has a key.
	Keyed bool
}

// A StateKind is what kind of state an operator has.
type StateKind uint8

const (
	// Stateless: none. It may be started anew and run in parallel at will.
	Stateless StateKind = iota
	// Whole: state of the subtask as a whole.
	Whole
	// Keyed: state by key, which follows the key groups when the parallelism changes.
	Keyed
)

// An Attribute is a named fact.
type Attribute struct {
	Name, Value string
}

// WithDefaults fills in the state versions that were left at zero.
func (d Descriptor) WithDefaults() Descriptor {
	if d.State != Stateless && d.StateVersion == 0 {
		d.StateVersion = 1
	}
	if d.OldestStateVersion == 0 {
		d.OldestStateVersion = d.StateVersion
	}
	return d
}
