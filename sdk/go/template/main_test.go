package main

import (
	"fmt"
	"testing"

	"github.com/weir-stream/weir/sdk/go/weir"
	"github.com/weir-stream/weir/sdk/go/weirtest"
)

// Plain native tests: no WebAssembly and no runtime, but a host that keeps the contract.

func value(sensor string, value float64) weirtest.Row {
	return weirtest.KV(sensor, fmt.Sprintf(`{"sensor":%q,"value":%v}`, sensor, value))
}

func TestHandsOnWhatHasChangedEnough(t *testing.T) {
	harness := weirtest.New(t, plugin, `{"least":0.5}`)
	harness.Process(0, value("roof", 3.0), value("roof", 3.4), value("cellar", 3.4), value("roof", 3.5))
	harness.Want(0, value("roof", 3.0), value("cellar", 3.4), value("roof", 3.5))
}

func TestPutsAsideWhatItCannotRead(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, weirtest.KV("roof", "{}"), weirtest.V("{}"), value("roof", 1))
	harness.Want(0, value("roof", 1))
	harness.WantRejected("it is no reading: it has no value", "it has no key")
}

func TestGoesOnAfterARestoreAsIfNothingHadHappened(t *testing.T) {
	before := weirtest.New(t, plugin, `{"least":0.5}`)
	before.Process(0, value("roof", 3.0))
	checkpoint := before.Snapshot()

	after := weirtest.Restore(t, plugin, `{"least":0.5}`, checkpoint)
	after.Process(0, value("roof", 3.1), value("roof", 9.0))
	after.Want(0, value("roof", 9.0))
}

func TestASnapshotInStepsHoldsWhatWasThereWhenItBegan(t *testing.T) {
	before := weirtest.New(t, plugin, "{}")
	before.Process(0, value("roof", 1), value("cellar", 1))
	before.BeginSnapshot(weir.Full)
	for before.SnapshotStep(1) == weir.More {
		before.Process(0, value("roof", 2), value("cellar", 2))
	}
	after := weirtest.Restore(t, plugin, `{"least":1}`, before.Checkpoint())
	after.Process(0, value("roof", 1.5), value("cellar", 2))
	after.Want(0, value("cellar", 2))
}

func TestKeysGoToOtherSubtasksWhenTheParallelismChanges(t *testing.T) {
	before := weirtest.New(t, plugin, `{"least":1}`)
	before.Process(0, value("roof", 1), value("cellar", 1))
	checkpoint := before.Snapshot()
	for subtask := range uint32(2) {
		task := weirtest.Subtask(subtask, 2)
		after := weirtest.RestoreTask(t, plugin, `{"least":1}`, task, checkpoint)
		for _, sensor := range []string{"roof", "cellar"} {
			if group := weir.KeyGroup(weir.KeyHash([]byte(sensor)), task.KeyGroups); group >= task.FirstKeyGroup && group < task.EndKeyGroup {
				after.Process(0, value(sensor, 1.5))
			}
		}
		after.Want(0)
	}
}

func TestRefusesAConfigurationWithATypingError(t *testing.T) {
	if _, err := weirtest.TryNew(t, plugin, `{"laest":0.5}`, weirtest.Task()); err == nil {
		t.Error("it was accepted")
	}
}
