package weir

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

type row struct {
	time       Timestamp
	key, value []byte
}

// Any pattern of missing keys and values comes back as it went in, and holds to the rules of the contract.
func TestABuiltBatchReadsAsItWasPushed(t *testing.T) {
	var builder BatchBuilder
	random := uint64(1)
	for length := range 70 {
		for pattern := range 6 {
			builder.Reset()
			var rows []row
			for i := range length {
				random = random*6364136223846793005 + 1442695040888963407
				bytes := func(at uint) []byte {
					bits := random >> at
					switch {
					case pattern == 0 || pattern == 1 && i < length/2 || pattern > 1 && bits&1 == 0:
						return nil
					case bits&2 == 0:
						return []byte{}
					default:
						return fmt.Append(nil, bits&0xfff)
					}
				}
				next := row{time: Timestamp(random), key: bytes(20), value: bytes(40)}
				if pattern == 5 {
					next.key = []byte("k")
				}
				rows = append(rows, next)
				builder.Push(next.time, next.key, next.value)
			}
			batch := builder.Batch()
			for name, column := range map[string]*Column{"keys": batch.Keys(), "values": batch.Values(), "headers": batch.Headers()} {
				if err := column.Check(length); err != nil {
					t.Fatalf("%s of %d rows: %v", name, length, err)
				}
			}
			at := 0
			for record := range batch.Records() {
				want := rows[at]
				if record.Time() != want.time || !same(record.Key(), want.key) || !same(record.Value(), want.value) {
					t.Fatalf("row %d of %d is %q = %q @ %d, not %v", at, length, record.Key(), record.Value(), record.Time(), want)
				}
				at++
			}
			if at != length {
				t.Fatalf("%d records of %d", at, length)
			}
		}
	}
}

// same tells nil and empty apart.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func TestABatchWhoseBytesAreAllEmptyHasEmptyKeysAndNotNone(t *testing.T) {
	column := NewColumn([]uint32{0, 0, 0}, nil, []byte{2})
	if column.Get(0) == nil || column.Get(1) != nil {
		t.Errorf("rows are %v and %v, not empty and nil", column.Get(0), column.Get(1))
	}
}

func TestARowCannotBeGrownIntoTheNext(t *testing.T) {
	var builder BatchBuilder
	builder.Push(0, []byte("ab"), []byte("x"))
	builder.Push(0, []byte("cd"), []byte("y"))
	batch := builder.Batch()
	_ = append(batch.Record(0).Key(), "!!"...)
	if key := batch.Record(1).Key(); string(key) != "cd" {
		t.Errorf("the second key is %q", key)
	}
}

func TestHeadersBelongToTheirRecord(t *testing.T) {
	var builder, copied BatchBuilder
	builder.Push(NoTime, nil, []byte("none"))
	builder.Push(NoTime, nil, []byte("two"))
	builder.Header("name", []byte("1"))
	builder.Header("other", nil)
	builder.Header("name", []byte("2"))
	builder.Push(NoTime, nil, []byte("none"))
	for record := range builder.Batch().Records() {
		copied.PushRecord(record)
	}
	for _, batch := range []*Batch{builder.Batch(), copied.Batch()} {
		if err := batch.Headers().Check(3); err != nil {
			t.Fatal(err)
		}
		var found []string
		for record := range batch.Records() {
			for name, value := range record.Headers().All() {
				found = append(found, fmt.Sprintf("%d %s=%s", record.Index(), name, value))
			}
		}
		if want := []string{"1 name=1", "1 other=", "1 name=2"}; !slices.Equal(found, want) {
			t.Errorf("headers are %q, not %q", found, want)
		}
		headers := batch.Record(1).Headers()
		if string(headers.Get("name")) != "1" || headers.Get("other") == nil || headers.Get("none") != nil {
			t.Errorf("headers by name are wrong: %q", headers.encoded)
		}
	}
}

func TestOtherColumnsMustFitTheBatch(t *testing.T) {
	var builder BatchBuilder
	builder.Push(1, []byte("k"), []byte("v"))
	batch := builder.Batch()
	var values ColumnBuilder
	values.PushString("w")
	if record := batch.WithValues(values.Column()).Record(0); string(record.Value()) != "w" || string(record.Key()) != "k" {
		t.Errorf("record is %q = %q", record.Key(), record.Value())
	}
	if value := batch.WithValues(Column{}).Record(0).Value(); value != nil {
		t.Errorf("a batch without values has %q", value)
	}
	values.PushString("one too many")
	defer func() {
		if reason := fmt.Sprint(recover()); reason != "a column of 2 rows for a batch of 1 records" {
			t.Errorf("panicked with %q", reason)
		}
	}()
	batch.WithValues(values.Column())
}

func TestJSONThatIsNestedTooDeepIsAnError(t *testing.T) {
	read := func(text string) error {
		var builder BatchBuilder
		builder.Push(0, nil, []byte(text))
		var value any
		for record := range builder.Batch().Records() {
			return record.JSON(&value)
		}
		return nil
	}
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	for _, text := range []string{nested(101), strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 101), `["\\",` + nested(100) + "]"} {
		if err := read(text); err == nil || err.Error() != "JSON that is nested more than 100 deep" {
			t.Errorf("%.40s… gives %v", text, err)
		}
	}
	for _, text := range []string{nested(100), "[" + strings.Repeat("[],", 500) + "0]", `["` + strings.Repeat(`\"[[{`, 500) + `"]`} {
		if err := read(text); err != nil {
			t.Errorf("%.40s… gives %v", text, err)
		}
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	config := struct{ Least float64 }{Least: 3}
	if err := Config("{}", &config); err != nil || config.Least != 3 {
		t.Errorf("an empty configuration gives %v, %v", config, err)
	}
	for text, want := range map[string]string{
		`{"laest":1}`:      `unknown field "laest"`,
		`{"least":"much"}`: "cannot unmarshal string",
		`{} {}`:            "there is something after the JSON object, at byte",
	} {
		if err := Config(text, &config); err == nil || KindOf(err, KindFatal) != KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("configuration %s gives %v, and should say %q", text, err, want)
		}
	}
}

func TestAnErrorKeepsItsKindWhenItIsWrapped(t *testing.T) {
	inner := Retry("the other side is busy")
	if kind := KindOf(fmt.Errorf("asking: %w", inner), KindFatal); kind != KindRetry {
		t.Errorf("kind is %v", kind)
	}
	if kind := KindOf(fmt.Errorf("any"), KindInvalid); kind != KindInvalid {
		t.Errorf("kind of any other error is %v", kind)
	}
}

func TestWithMoreToSayACallGoesOnInResume(t *testing.T) {
	var base Base
	left := 3
	progress, err := base.InSteps(nil, func(*Output) (Progress, error) {
		if left--; left > 0 {
			return More, nil
		}
		return Done, nil
	})
	for progress == More && err == nil {
		progress, err = base.Resume(nil)
	}
	if left != 0 || err != nil {
		t.Errorf("%d steps are left, error %v", left, err)
	}
	if progress, _ := base.Resume(nil); progress != Done || left != 0 {
		t.Errorf("a step that was done was taken again")
	}
}
