package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-stream/weir/sdk/go/state"
	"github.com/weir-stream/weir/sdk/go/weir"
	"github.com/weir-stream/weir/sdk/go/weirtest"
)

// everything is an operator whose state has one of each. Tests reach into it.
type everything struct {
	weir.Base
	*state.Segments
	counts *state.Keyed[uint64]
	texts  *state.Keyed[text]
	timers *state.EventTimers
	own    *state.Value[string]
	rules  *state.Value[map[string]int]
}

type text struct {
	Text string
	Log  []int `json:",omitempty"`
}

var plugin = weir.Plugin{
	Descriptor: weir.Descriptor{
		Name: "everything", Version: "1.0.0", State: weir.Keyed,
		Inputs: []weir.Port{{Name: "in", Keyed: true}}, Outputs: []weir.Port{{Name: "out"}},
	},
	Open: func(_ string, task weir.TaskInfo) (weir.Operator, error) {
		segments := state.NewSegments(task)
		return &everything{
			Segments: segments,
			counts:   state.NewKeyedWith(segments, "counts", state.Uint64),
			texts:    state.NewKeyed[text](segments, "texts"),
			timers:   state.NewEventTimers(segments, "timers"),
			own:      state.NewValueWith(segments, "own", weir.ScopeSubtask, state.String),
			rules:    state.NewValue[map[string]int](segments, "rules", weir.ScopeShared),
		}, nil
	},
}

// Process takes orders: the value says what to do with the key.
func (e *everything) Process(_ uint32, batch *weir.Batch, out *weir.Output) (weir.Progress, error) {
	for record := range batch.Records() {
		key, _ := record.Keyed()
		switch order := string(record.Value()); order {
		case "count":
			*e.counts.Value(key)++
		case "forget":
			e.counts.Delete(key)
			e.texts.Delete(key)
		case "set":
			e.timers.Set(record.Time(), key)
		case "cancel":
			e.timers.Cancel(record.Time(), key)
		default:
			t := e.texts.Value(key)
			t.Text = order
			t.Log = append(t.Log, len(order))
		}
	}
	return weir.Done, nil
}

func of(harness *weirtest.Harness) *everything { return harness.Operator.(*everything) }

// contents is all that an operator holds, in the order in which it gives it.
func contents(e *everything) []string {
	all := []string{fmt.Sprintf("own %q, rules %v", e.own.Get(), e.rules.Get())}
	for key, count := range e.counts.All() {
		all = append(all, fmt.Sprintf("count %q %d", key.Bytes, count))
	}
	for key, text := range e.texts.All() {
		all = append(all, fmt.Sprintf("text %q %v", key.Bytes, text))
	}
	return all
}

// someOrders are what a model-based test does in one go.
func someOrders(random *rand.Rand, keys int) []weirtest.Row {
	var rows []weirtest.Row
	for range 1 + random.IntN(40) {
		key := fmt.Sprintf("key %d", random.IntN(keys))
		if random.IntN(8) == 0 {
			key += strings.Repeat(" long", random.IntN(40))
		}
		order := []string{"count", "count", "forget", "set", "cancel", "some text", "", "other"}[random.IntN(8)]
		rows = append(rows, weirtest.KV(key, order).At(int64(random.IntN(200))))
	}
	return rows
}

// The heart of it: whatever happens between the steps of a snapshot, what it restores is what was there at the cut, to the byte
// and in order; and an operator that was restored writes the same bytes as one that has run on.
func TestASnapshotInStepsIsTheStateAtTheCut(t *testing.T) {
	for seed := range uint64(24) {
		random := rand.New(rand.NewPCG(seed, 1))
		harness := weirtest.New(t, plugin, "{}")
		for epoch := range 12 {
			for range random.IntN(4) {
				harness.Process(0, someOrders(random, 1+int(seed)*7)...)
			}
			if random.IntN(3) == 0 {
				of(harness).own.Set(fmt.Sprint("own ", epoch))
				(*of(harness).rules.Change()) = map[string]int{"b": epoch, "a": 1}
			}
			mode := weir.Incremental
			if random.IntN(5) == 0 {
				mode = weir.Full
			}
			harness.BeginSnapshot(mode)
			want := contents(of(harness))
			timers := of(harness).timers.Len()
			if random.IntN(6) == 0 {
				// Abandoned after a step: the next is full.
				if harness.SnapshotStep(1) == weir.More {
					harness.Process(0, someOrders(random, 5)...)
					harness.BeginSnapshot(weir.Incremental)
					want, timers = contents(of(harness)), of(harness).timers.Len()
				} else {
					continue
				}
			}
			for harness.SnapshotStep(1+random.IntN(3)) == weir.More {
				harness.Process(0, someOrders(random, 1+int(seed)*7)...)
				of(harness).own.Set("after the cut")
			}
			restored := weirtest.Restore(t, plugin, "{}", harness.Checkpoint())
			if got := contents(of(restored)); !slices.Equal(got, want) {
				t.Fatalf("seed %d, epoch %d: restored\n%s\nand not what was there at the cut\n%s", seed, epoch, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if got := of(restored).timers.Len(); got != timers {
				t.Fatalf("seed %d, epoch %d: %d timers were restored, and not %d", seed, epoch, got, timers)
			}
			if got, want := restored.FullSnapshot().Contents(), harness.Checkpoint().Contents(); !slices.Equal(got, want) {
				t.Fatalf("seed %d, epoch %d: a restored operator writes other bytes", seed, epoch)
			}
		}
	}
}

// The same against a map.
func TestKeyedHoldsWhatAMapHolds(t *testing.T) {
	segments := state.NewSegments(weirtest.Task())
	keyed, model := state.NewKeyedWith(segments, "keyed", state.Int64), map[string]int64{}
	random := rand.New(rand.NewPCG(7, 7))
	for step := range 200_000 {
		name := fmt.Sprint(random.IntN(3000))
		key := weir.KeyOf([]byte(name))
		switch random.IntN(5) {
		case 0:
			_, there := model[name]
			if delete(model, name); keyed.Delete(key) != there {
				t.Fatalf("step %d: deleting %q is wrong about whether it was there", step, name)
			}
		case 1:
			value, ok := keyed.Get(key)
			if want, there := model[name]; ok != there || value != want {
				t.Fatalf("step %d: %q is %d, %v and not %d, %v", step, name, value, ok, want, there)
			}
		case 2:
			if value := keyed.Find(key); value != nil {
				*value++
				model[name]++
			}
		default:
			keyed.Set(key, int64(step))
			model[name] = int64(step)
		}
	}
	if keyed.Len() != len(model) {
		t.Errorf("%d keys, and not %d", keyed.Len(), len(model))
	}
	got := map[string]int64{}
	for key, value := range keyed.All() {
		got[string(key.Bytes)] = value
	}
	if !maps.Equal(got, model) {
		t.Errorf("what is iterated differs from the model")
	}
}

func TestAPointerStaysGoodWhileOtherKeysAreAdded(t *testing.T) {
	keyed := state.NewKeyedWith(state.NewSegments(weirtest.Task()), "keyed", state.Uint64)
	first := keyed.Value(weir.KeyOf([]byte("first")))
	for i := range 10_000 {
		keyed.Set(weir.KeyOf(fmt.Append(nil, i)), 1)
	}
	*first = 42
	if value, _ := keyed.Get(weir.KeyOf([]byte("first"))); value != 42 {
		t.Errorf("the value is %d: the pointer went stale", value)
	}
}

func TestOnlyKeyGroupsThatChangedAreWritten(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	for i := range 2000 {
		harness.Process(0, weirtest.KV(fmt.Sprint(i), "count"))
	}
	full := harness.Snapshot().LastSnapshotBytes()
	harness.Process(0, weirtest.KV("7", "count"))
	if one := harness.Snapshot().LastSnapshotBytes(); one == 0 || one > full/50 {
		t.Errorf("one key of 2,000 changed, and %d bytes of %d were written", one, full)
	}
	if nothing := harness.Snapshot().LastSnapshotBytes(); nothing != 0 {
		t.Errorf("nothing changed, and %d bytes were written", nothing)
	}
}

func TestAKeyGroupThatBecomesEmptyIsCleared(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, weirtest.KV("a", "count"), weirtest.KV("a", "text"))
	harness.Snapshot()
	harness.Process(0, weirtest.KV("a", "forget"))
	if left := harness.Snapshot().Contents(); len(left) != 0 {
		t.Errorf("of a key that is gone the checkpoint holds %q", left)
	}
}

func TestChunksAreNotLargerThanTheyMayBe(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	for length := range 30 {
		harness.Process(0, weirtest.KV("a", strings.Repeat("x", 20_000+length)+string(rune('a'+length))))
		harness.Process(0, weirtest.KV(strings.Repeat("k", 30_000+length), "count"))
	}
	for _, large := range []int{256<<10 - 40, 256<<10 - 20, 256 << 10, 512 << 10, 1 << 20, 3 << 20} {
		harness.Process(0, weirtest.KV(fmt.Sprint("large ", large), strings.Repeat("y", large)))
	}
	checkpoint := harness.Snapshot()
	for _, chunk := range checkpoint.Chunks() {
		if len(chunk) > 256<<10 {
			t.Errorf("a chunk has %d bytes", len(chunk))
		}
	}
	restored := weirtest.Restore(t, plugin, "{}", checkpoint)
	if !slices.Equal(contents(of(restored)), contents(of(harness))) {
		t.Error("entries that are larger than a chunk did not come back")
	}
}

func TestAStepWritesNoMoreThanItMay(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	for i := range 500 {
		harness.Process(0, weirtest.KV(fmt.Sprint(i), "count"))
	}
	harness.BeginSnapshot(weir.Full)
	steps := 1
	for harness.SnapshotStep(1) == weir.More {
		steps++
	}
	if chunks := len(harness.Checkpoint().Chunks()); steps != chunks || chunks < 100 {
		t.Errorf("%d chunks were written in %d steps of one", chunks, steps)
	}
}

func TestKeysFollowTheirGroupsWhenTheParallelismChanges(t *testing.T) {
	orders := []weirtest.Row{}
	for i := range 300 {
		orders = append(orders, weirtest.KV(fmt.Sprint(i), "count"), weirtest.KV(fmt.Sprint(i), "set").At(int64(i)))
	}
	split := func(subtask, parallelism uint32) (mine []weirtest.Row) {
		task := weirtest.Subtask(subtask, parallelism)
		for _, order := range orders {
			if group := weir.KeyGroup(weir.KeyHash(order.Key), 128); group >= task.FirstKeyGroup && group < task.EndKeyGroup {
				mine = append(mine, order)
			}
		}
		return mine
	}
	var three []weirtest.Checkpoint
	for subtask := range uint32(3) {
		harness := weirtest.NewTask(t, plugin, "{}", weirtest.Subtask(subtask, 3))
		harness.Process(0, split(subtask, 3)...)
		of(harness).rules.Set(map[string]int{"rule": 1})
		three = append(three, harness.Snapshot())
	}
	for subtask := range uint32(2) {
		restored := weirtest.RestoreTask(t, plugin, "{}", weirtest.Subtask(subtask, 2), three...)
		want := weirtest.NewTask(t, plugin, "{}", weirtest.Subtask(subtask, 2))
		want.Process(0, split(subtask, 2)...)
		of(want).rules.Set(map[string]int{"rule": 1})
		if got, want := contents(of(restored)), contents(of(want)); !slices.Equal(got, want) {
			t.Errorf("subtask %d of 2 holds\n%v\nand not\n%v", subtask, got, want)
		}
		if got, want := of(restored).timers.Len(), of(want).timers.Len(); got != want {
			t.Errorf("subtask %d of 2 has %d timers, not %d", subtask, got, want)
		}
	}
}

func TestAKeyOfAnotherSubtaskIsAMistake(t *testing.T) {
	keyed := state.NewKeyedWith(state.NewSegments(weirtest.Subtask(0, 2)), "keyed", state.Uint64)
	defer func() {
		if reason := fmt.Sprint(recover()); !strings.Contains(reason, "declare the input port as Keyed") {
			t.Errorf("panicked with %q", reason)
		}
	}()
	keyed.Value(weir.Key{Bytes: []byte("x"), Hash: math.MaxUint64})
}

func TestDamagedStateIsRefusedAndTheFaultIsNamed(t *testing.T) {
	harness := weirtest.New(t, plugin, "{}")
	harness.Process(0, weirtest.KV("a", "count"), weirtest.KV("a", "text"), weirtest.KV("a", "set").At(3))
	checkpoint := harness.Snapshot()
	try := func(damage func([]byte) []byte) error {
		_, err := weirtest.TryRestore(t, plugin, "{}", weirtest.Task(), checkpoint.Damage(0, damage))
		return err
	}
	for name, test := range map[string]struct {
		damage func([]byte) []byte
		want   string
	}{
		"another format":  {func(c []byte) []byte { c[0] = 9; return c }, "chunk format 9, this plugin's SDK reads 1"},
		"cut short":       {func(c []byte) []byte { return c[:len(c)-1] }, "cut short"},
		"another key":     {func(c []byte) []byte { c[bytes.Index(c, []byte("counts"))+13] = 'b'; return c }, "key group 25 holds a key of group"},
		"another name":    {func(c []byte) []byte { c[bytes.Index(c, []byte("counts"))] = 'k'; return c }, `a collection "kounts" of scope key-group, which this plugin does not have`},
		"another value":   {func(c []byte) []byte { c[bytes.Index(c, []byte("{"))] = '['; return c }, `the value of key "a" in "texts"`},
		"an unknown kind": {func(c []byte) []byte { c[1] = 77; return c }, "of an unknown kind"},
	} {
		err := try(test.damage)
		if err == nil || !strings.Contains(err.Error(), test.want) || weir.KindOf(err, weir.KindFatal) != weir.KindInvalid {
			t.Errorf("%s: restore says %v, and should say %q", name, err, test.want)
		}
	}
	// Whatever byte is damaged, it is an error or another state, and never a panic.
	for at := range len(checkpoint.Chunks()[0]) {
		for _, bit := range []byte{1, 0x80} {
			_ = try(func(c []byte) []byte { c[at] ^= bit; return c })
		}
		_ = try(func(c []byte) []byte { return c[:at] })
	}
}

func TestStateOfADeltaIsRead(t *testing.T) {
	// As the Rust SDK writes it: a base with keys a and b, then a delta that removes a.
	section := func(operation byte, body ...byte) []byte {
		head := append([]byte{operation, 6}, "counts"...)
		return append(append(head, 0, 0, byte(len(body)), 0, 0, 0), body...)
	}
	number := []byte{8, 5, 0, 0, 0, 0, 0, 0, 0}
	segments := state.NewSegments(weirtest.Task())
	counts := state.NewKeyedWith(segments, "counts", state.Uint64)
	group := weir.ScopeKeyGroup(25)
	for _, chunk := range []weir.Chunk{
		{Scope: group, Kind: weir.SegmentBase, Data: append([]byte{1}, section(0, append([]byte{1, 'a'}, number...)...)...)},
		{Scope: group, Kind: weir.SegmentDelta, Data: append([]byte{1}, section(1, 1, 'a')...)},
	} {
		if err := segments.RestoreChunk(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if counts.Len() != 0 {
		t.Errorf("%d keys are left", counts.Len())
	}
}

func TestTimersComeDueByTimeThenKey(t *testing.T) {
	segments := state.NewSegments(weirtest.Task())
	timers := state.NewEventTimers(segments, "timers")
	random := rand.New(rand.NewPCG(3, 3))
	model := map[string]bool{}
	name := func(time int64, key string) string { return fmt.Sprintf("%020d %s", time+1000, key) }
	for range 20_000 {
		time, key := int64(random.IntN(400)-200), fmt.Sprint("k", random.IntN(50))
		if random.IntN(3) == 0 {
			if timers.Cancel(time, weir.KeyOf([]byte(key))) != model[name(time, key)] {
				t.Fatal("cancelling is wrong about whether the timer was set")
			}
			delete(model, name(time, key))
		} else {
			if timers.Set(time, weir.KeyOf([]byte(key))) == model[name(time, key)] {
				t.Fatal("setting is wrong about whether the timer was set")
			}
			model[name(time, key)] = true
		}
	}
	want := slices.Sorted(maps.Keys(model))
	if timers.Len() != len(want) {
		t.Fatalf("%d timers, and not %d", timers.Len(), len(want))
	}
	var got []string
	for watermark := int64(-250); watermark < 250; watermark += 7 {
		for timer := range timers.Due(watermark) {
			got = append(got, name(timer.Time, string(timer.Key.Bytes)))
			if timer.Time > watermark {
				t.Errorf("at watermark %d a timer of %d came due", watermark, timer.Time)
			}
		}
		if earliest, ok := timers.Earliest(); ok && earliest <= watermark {
			t.Errorf("after watermark %d the earliest is %d", watermark, earliest)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("timers came due as\n%v\nand not as\n%v", got, want)
	}
}

func TestATimerThatIsSetWhileOthersComeDueComesInItsPlace(t *testing.T) {
	timers := state.NewEventTimers(state.NewSegments(weirtest.Task()), "timers")
	key := func(name string) weir.Key { return weir.KeyOf([]byte(name)) }
	timers.Set(10, key("a"))
	timers.Set(10, key("b"))
	timers.Set(30, key("c"))
	var got []string
	for timer := range timers.Due(25) {
		got = append(got, fmt.Sprint(timer.Time, string(timer.Key.Bytes)))
		if string(timer.Key.Bytes) == "a" {
			timers.Cancel(10, key("b"))
			timers.Set(20, key("later"))
			timers.Set(5, key("earlier"))
			timers.Set(26, key("not yet"))
		}
	}
	if want := []string{"10a", "5earlier", "20later"}; !slices.Equal(got, want) {
		t.Errorf("came due %v, and not %v", got, want)
	}
	if timers.Len() != 2 {
		t.Errorf("%d timers are left, not 2", timers.Len())
	}
}

func TestTimersThatWereNotTakenStaySet(t *testing.T) {
	timers := state.NewEventTimers(state.NewSegments(weirtest.Task()), "timers")
	for i := range 5 {
		timers.Set(1, weir.KeyOf(fmt.Append(nil, i)))
	}
	var got []string
	for timer := range timers.Due(1) {
		if got = append(got, string(timer.Key.Bytes)); len(got) == 2 {
			break
		}
	}
	for timer := range timers.Due(1) {
		got = append(got, string(timer.Key.Bytes))
	}
	if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(got, want) {
		t.Errorf("came due %v, and not %v", got, want)
	}
}

// Timers that are moved on and on, as those of sessions or of a time to live are, must not pile up.
func TestATimerThatIsMovedLeavesNothingBehind(t *testing.T) {
	timers := state.NewEventTimers(state.NewSegments(weirtest.Task()), "timers")
	key := weir.KeyOf([]byte("k"))
	moved := int64(0)
	move := func() {
		timers.Cancel(moved, key)
		moved++
		timers.Set(moved, key)
	}
	for range 100_000 {
		move()
	}
	if allocated := testing.AllocsPerRun(20_000, move); allocated > 3 {
		t.Errorf("moving a timer allocates %v times", allocated)
	}
	if due := slices.Collect(timers.Due(math.MaxInt64)); len(due) != 1 || due[0].Time != moved {
		t.Errorf("due is %v, and should be one timer at %d", due, moved)
	}
}

func TestAValueThatCannotBeEncodedFailsTheSnapshotAndIsNamed(t *testing.T) {
	unwritable := plugin
	unwritable.Open = func(_ string, task weir.TaskInfo) (weir.Operator, error) {
		segments := state.NewSegments(task)
		op := &everything{Segments: segments, counts: state.NewKeyedWith(segments, "counts", state.Codec[uint64](state.Funcs[uint64]{
			AppendFunc: func(to []byte, value *uint64) ([]byte, error) {
				if *value == 2 {
					return to, errors.New("two is not written")
				}
				return append(to, byte(*value)), nil
			},
		}))}
		return op, nil
	}
	harness := weirtest.New(t, unwritable, "{}")
	harness.Process(0, weirtest.KV("a", "count"), weirtest.KV("a", "count"))
	harness.BeginSnapshot(weir.Full)
	_, err := harness.TrySnapshotStep(10)
	if err == nil || !strings.Contains(err.Error(), `collection "counts" cannot be written: two is not written`) {
		t.Errorf("the snapshot says %v", err)
	}
	// It can be written again when the value can.
	harness.Process(0, weirtest.KV("a", "count"))
	harness.BeginSnapshot(weir.Incremental)
	for harness.SnapshotStep(1) == weir.More {
	}
	if chunks := harness.Checkpoint().Chunks(); len(chunks) != 1 || chunks[0][len(chunks[0])-1] != 3 {
		t.Errorf("chunks are %q", chunks)
	}
}

func TestTwoCollectionsOfOneNameAreAMistake(t *testing.T) {
	segments := state.NewSegments(weirtest.Task())
	state.NewKeyed[int](segments, "same")
	defer func() {
		if reason := fmt.Sprint(recover()); reason != `two collections are named "same": give each its own name` {
			t.Errorf("panicked with %q", reason)
		}
	}()
	state.NewEventTimers(segments, "same")
}
