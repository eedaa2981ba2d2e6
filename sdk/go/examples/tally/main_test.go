package main

import (
	"math"
	"testing"

	"github.com/weir-stream/weir/sdk/go/weir"
	"github.com/weir-stream/weir/sdk/go/weirtest"
)

func record(key string, at weir.Timestamp) weirtest.Row { return weirtest.KV(key, "").At(at) }

func emitted(key string, at weir.Timestamp, value string) weirtest.Row {
	return weirtest.KV(key, value).At(at)
}

func TestWindowsAreEmittedByEndThenKey(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, record("b", 0), record("a", minute-1), record("b", minute), record("b", 5), record("a", -1))
	harness.Advance(minute - 1)
	harness.Want(0, emitted("a", 0, "0 1 1 a"))
	harness.Advance(math.MaxInt64)
	harness.Want(0,
		emitted("a", minute, "60000000 1 2 a"),
		emitted("b", minute, "60000000 2 2 b"),
		emitted("b", 2*minute, "120000000 1 3 b"),
	)
}

func TestALateRecordOpensItsWindowAnew(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, record("a", 1))
	harness.Advance(minute)
	harness.Process(0, record("a", 2))
	harness.Advance(2 * minute)
	harness.Want(0, emitted("a", minute, "60000000 1 1 a"), emitted("a", minute, "60000000 1 2 a"))
}

func TestARecordWithoutKeyOrTimeIsRejected(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, weirtest.V("").At(1), weirtest.KV("a", ""))
	harness.WantRejected("no key", "no time")
}

func TestGoesOnAfterARestoreAtAnotherParallelism(t *testing.T) {
	before := weirtest.New(t, plugin, "{}")
	before.Process(0, record("a", 1), record("abc", 1), record("", 1))
	before.Advance(minute)
	before.Take(0)
	before.Process(0, record("a", minute+1), record("abc", minute+1), record("", minute+1))
	checkpoint := before.Snapshot()

	var rows []weirtest.Row
	for subtask := range uint32(3) {
		after := weirtest.RestoreTask(t, plugin, "{}", weirtest.Subtask(subtask, 3), checkpoint)
		after.Advance(math.MaxInt64)
		rows = append(rows, after.Take(0)...)
	}
	if len(rows) != 3 {
		t.Fatalf("three subtasks have %d windows, not 3: %v", len(rows), rows)
	}
	before.Advance(math.MaxInt64)
	before.Want(0,
		emitted("", 2*minute, "120000000 1 2 "),
		emitted("a", 2*minute, "120000000 1 2 a"),
		emitted("abc", 2*minute, "120000000 1 2 abc"),
	)
}

func BenchmarkProcess(b *testing.B) {
	harness := weirtest.New(b, plugin, "{}")
	var batch weir.BatchBuilder
	var hashes []uint64
	for i := range 1024 {
		key := []byte{byte(i * 7), byte(i), 0, 0}
		batch.Push(int64(i)*10, key, make([]byte, 84))
		hashes = append(hashes, weir.KeyHash(key))
	}
	columns := batch.Batch()
	input := weir.NewBatch(columns.Timestamps(), hashes, *columns.Keys(), *columns.Values(), *columns.Headers())
	for b.Loop() {
		harness.Operator.Process(0, input, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*input.Len()), "ns/record")
}
