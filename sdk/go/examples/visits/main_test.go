package main

import (
	"testing"

	"github.com/weir-stream/weir/sdk/go/weir"
	"github.com/weir-stream/weir/sdk/go/weirtest"
)

const second = 1_000_000

func record(key string, seconds int64) weirtest.Row { return weirtest.KV(key, "").At(seconds * second) }

func emitted(key string, seconds int64, value string) weirtest.Row {
	return weirtest.KV(key, value).At(seconds * second)
}

func TestARecordBetweenTwoSessionsJoinsThem(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, record("a", 100), record("a", 40), record("b", 40), record("a", 41), record("a", 70))
	harness.Advance(129 * second)
	harness.Want(0, emitted("b", 40, "40000000 40000000 1 b"))
	harness.Advance(130 * second)
	harness.Want(0, emitted("a", 100, "40000000 100000000 4 a"))
}

func TestAGapOfMoreThanThirtySecondsEndsASession(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, record("a", 0), record("a", 30))
	harness.Process(0, record("b", 0), weirtest.KV("b", "").At(30*second+1))
	harness.Advance(weir.EndOfTime)
	harness.Want(0,
		emitted("b", 0, "0 0 1 b"),
		emitted("a", 30, "0 30000000 2 a"),
		weirtest.KV("b", "30000001 30000001 1 b").At(30*second+1),
	)
}

func TestStateThatIsNotNeededIsGone(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, record("a", 0), record("b", 0))
	if checkpoint := harness.Snapshot(); checkpoint.ByteLen() == 0 {
		t.Error("open sessions are not in the checkpoint")
	}
	harness.Advance(weir.EndOfTime)
	if checkpoint := harness.Snapshot(); checkpoint.ByteLen() != 0 {
		t.Errorf("sessions that are over are still in the checkpoint: %q", checkpoint.Contents())
	}
}

func TestGoesOnAfterARestoreInTheMiddleOfASnapshot(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, record("a", 0), record("b", 10), record("c", 20))
	harness.BeginSnapshot(weir.Full)
	for step := harness.SnapshotStep(1); step == weir.More; step = harness.SnapshotStep(1) {
		// What comes after the cut is not part of it.
		harness.Process(0, record("a", 30), record("b", 30), record("c", 30))
	}
	after := weirtest.Restore(t, plugin, "{}", harness.Checkpoint())
	after.Advance(weir.EndOfTime)
	after.Want(0, emitted("a", 0, "0 0 1 a"), emitted("b", 10, "10000000 10000000 1 b"), emitted("c", 20, "20000000 20000000 1 c"))
}
