//! Images of components that were written for their shape: memories and globals of every kind, a module that is instantiated twice,
//! components in components. Each runs, is put into fresh instances at any moment, and must be told apart by nothing.

use std::sync::Arc;

use proptest::prelude::*;
use wasmtime::component::Linker;

use super::*;
use crate::plan::LimitsSpec;
use crate::plugin::engine::SharedEngine;
use crate::plugin::instrument::instrument;
use crate::plugin::limits::Meter;
use crate::plugin::log::Log;
use crate::plugin::metrics::TaskMetrics;

/// Mixes its parameter into globals of every type and into memory, which it grows and clears now and then.
const MODULE: &str = r#"
    (memory (export "memory") 1 12)
    (data (i32.const 4090) "some data across two pages")
    (data (i32.const 65500) "and some at the end")
    (global $a (mut i32) (i32.const 1))
    (global $fixed i32 (i32.const 7))
    (global $b (mut i64) (i64.const 2))
    (global $c (mut f32) (f32.const 3))
    (global $d (mut f64) (f64.const 4))
    (global $e (mut v128) (v128.const i64x2 5 6))
    (func (export "step") (param $x i32) (result i64)
      (local $at i32)
      (global.set $a (i32.add (i32.mul (global.get $a) (i32.const 31)) (local.get $x)))
      (global.set $b (i64.add (i64.rotl (global.get $b) (i64.const 7)) (i64.extend_i32_u (global.get $a))))
      ;; Any bits at all, NaNs with payloads among them.
      (global.set $c (f32.reinterpret_i32 (global.get $a)))
      (global.set $d (f64.reinterpret_i64 (i64.rotl (global.get $b) (i64.const 32))))
      (global.set $e (i64x2.add (global.get $e) (i64x2.splat (global.get $b))))
      (if (i32.and (i32.eqz (i32.rem_u (local.get $x) (i32.const 11))) (i32.lt_u (memory.size) (i32.const 12))) (then (drop (memory.grow (i32.const 1)))))
      (if (i32.eqz (i32.rem_u (local.get $x) (i32.const 5)))
        (then (memory.fill (i32.const 0) (i32.const 0) (i32.const 8192)))
        (else
          (local.set $at (i32.rem_u (i32.and (global.get $a) (i32.const 0x7fffffff))
            (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 8))))
          (i64.store (local.get $at) (i64.xor (i64.load (local.get $at)) (global.get $b)))))
      (i64.add
        (i64.add (i64.load (i32.const 0)) (i64x2.extract_lane 1 (global.get $e)))
        (i64.add
          (i64.add (i64.extend_i32_u (i32.reinterpret_f32 (global.get $c))) (i64.reinterpret_f64 (global.get $d)))
          (i64.add (i64.load (local.get $at)) (i64.extend_i32_u (memory.size))))))
"#;

/// The functions that a test calls; each shape has both, on different core instances.
const STEPS: [&str; 2] = ["one", "two"];

fn lifted(instance: &str, name: &str) -> String {
    format!(
        "(func ${name} (param \"x\" u32) (result u64) (canon lift (core func ${instance} \"step\"))) \
         (export \"{name}\" (func ${name}))"
    )
}

/// One module that is instantiated twice.
fn twice() -> String {
    format!(
        "(component (core module $m {MODULE}) (core instance $i (instantiate $m)) (core instance $j (instantiate $m)) {} {})",
        lifted("i", "one"),
        lifted("j", "two")
    )
}

/// A module with two memories, and one whose memory another has.
fn shared() -> String {
    let user = r#"
        (import "m" "memory" (memory 1))
        (memory $own 2)
        (global $n (mut i32) (i32.const 0))
        (func (export "step") (param $x i32) (result i64)
          (global.set $n (i32.add (global.get $n) (i32.const 8)))
          (i64.store (i32.and (global.get $n) (i32.const 0xfff8)) (i64.extend_i32_u (local.get $x)))
          (i64.store $own (i32.and (i32.mul (global.get $n) (i32.const 513)) (i32.const 0x1fff8)) (i64.extend_i32_u (global.get $n)))
          (i64.add (i64.load (local.get $x)) (i64.load $own (local.get $x))))
    "#;
    format!(
        "(component (core module $m {MODULE}) (core module $u {user}) (core instance $i (instantiate $m)) \
         (core instance $j (instantiate $u (with \"m\" (instance $i)))) {} {})",
        lifted("i", "one"),
        lifted("j", "two")
    )
}

/// A component in a component in a component, each with a module from outside, and one of them instantiated twice.
fn nested() -> String {
    format!(
        "(component $root (core module $m {MODULE})
           (component $outer
             (core module $own {MODULE})
             (component $inner (alias outer $root $m (core module $n)) (core instance $i (instantiate $n)) {})
             (instance $a (instantiate $inner))
             (core instance $mine (instantiate $own))
             {}
             (alias export $a \"one\" (func $one)) (export \"one\" (func $one)))
           (instance $x (instantiate $outer)) (instance $y (instantiate $outer))
           (core instance (instantiate $m))
           (alias export $x \"one\" (func $p)) (export \"one\" (func $p))
           (alias export $y \"two\" (func $q)) (export \"two\" (func $q)))",
        lifted("i", "one"),
        lifted("mine", "two")
    )
}

struct Subject {
    engine: Arc<SharedEngine>,
    component: Component,
    linker: Linker<HostState>,
    accessors: Accessors,
}

struct Running {
    store: Store<HostState>,
    image: Image,
    steps: Vec<TypedFunc<(u32,), (u64,)>>,
}

impl Subject {
    fn new(text: &str) -> Self {
        let engine = SharedEngine::new(64).expect("an engine");
        let original = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let instrumented = instrument(&original).unwrap_or_else(|refusal| panic!("{refusal}"));
        let component = Component::from_binary(engine.engine(), &instrumented).expect("it compiles");
        let accessors = Accessors::find(&component).expect("it was instrumented");
        let linker = Linker::new(engine.engine());
        Self { engine, component, linker, accessors }
    }

    async fn start(&self, limits: LimitsSpec) -> Running {
        let accounts = crate::account::Accounts::new(1, None, crate::clock::Clock::system());
        let place = self.engine.place(accounts.free()).expect("a place");
        let log = Log::new(accounts.free(), ("job".into(), "node".into(), 0), crate::clock::Clock::system(), 1);
        let state = HostState::new(Meter::new(limits, None), log, TaskMetrics::default(), place);
        let mut store = Store::new(self.engine.engine(), state);
        store.limiter(|state| &mut state.meter);
        store.epoch_deadline_callback(|_| Ok(wasmtime::UpdateDeadline::Yield(1)));
        store.set_epoch_deadline(1);
        let instance = self.linker.instantiate_async(&mut store, &self.component).await.expect("it starts");
        let image = Image::new(&self.accessors, &mut store, &instance, [7; 32]).expect("its accessors are there");
        let steps = STEPS.map(|name| instance.get_typed_func(&mut store, name).expect("a function"));
        Running { store, image, steps: steps.to_vec() }
    }
}

#[derive(Default)]
struct Written(Vec<(SegmentKind, Vec<u8>)>);

impl SnapshotWriter for Written {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        assert_eq!(scope, Scope::Subtask);
        self.0.push((kind, data.to_vec()));
        false
    }
}

impl Running {
    async fn step(&mut self, which: usize, x: u32) -> u64 {
        self.steps[which].call_async(&mut self.store, (x,)).await.expect("it works").0
    }

    async fn snapshot(&mut self, mode: SnapshotMode) -> Vec<(SegmentKind, Vec<u8>)> {
        let mut written = Written::default();
        self.image.snapshot(&mut self.store, mode, &mut written).await.unwrap_or_else(|fault| panic!("{fault:?}"));
        written.0
    }

    async fn restore(&mut self, chunks: &[(SegmentKind, Vec<u8>)]) -> Result<(), String> {
        let chunk = |(kind, data): &(SegmentKind, Vec<u8>)| Chunk {
            scope: Scope::Subtask,
            kind: *kind,
            origin: 0,
            data: data.clone().into(),
        };
        let chunks: Vec<Chunk> = chunks.iter().map(chunk).collect();
        self.image.restore(&mut self.store, &chunks).await.map_err(|fault| match fault {
            ImageFault::Unfit(what) => what,
            ImageFault::Host(error) => format!("{error:#}"),
        })
    }
}

type Chunks = Vec<(SegmentKind, Vec<u8>)>;

/// What the store holds after a snapshot.
fn apply(held: &mut Vec<(SegmentKind, Vec<u8>)>, written: Vec<(SegmentKind, Vec<u8>)>) {
    if written.iter().any(|(kind, _)| *kind == SegmentKind::Base) {
        held.clear();
    }
    held.extend(written);
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Step(usize, u32),
    /// Both are saved in this mode; one of them goes on in a fresh instance, or not.
    Save(bool, bool),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let step = (0..2_usize, 0..1_000_u32).prop_map(|(which, x)| Deed::Step(which, x));
    let save = (prop::bool::weighted(0.3), prop::bool::weighted(0.7)).prop_map(|(full, anew)| Deed::Save(full, anew));
    prop::collection::vec(prop_oneof![3 => step, 1 => save], 1..40)
}

/// One is never disturbed, the other goes on in fresh instances: what they answer and what they save is the same, byte for byte.
async fn goes_on_as_if_nothing_had_happened(subject: &Subject, deeds: &[Deed]) {
    let mut calm = subject.start(LimitsSpec::default()).await;
    let mut moved = subject.start(LimitsSpec::default()).await;
    let mut held = Vec::new();
    for (at, deed) in deeds.iter().enumerate() {
        match *deed {
            Deed::Step(which, x) => assert_eq!(calm.step(which, x).await, moved.step(which, x).await, "deed {at}"),
            Deed::Save(full, anew) => {
                let mode = if full || held.is_empty() { SnapshotMode::Full } else { SnapshotMode::Incremental };
                let (one, other) = (calm.snapshot(mode).await, moved.snapshot(mode).await);
                assert!(one == other, "deed {at}: what is saved differs");
                apply(&mut held, one);
                if anew {
                    moved = subject.start(LimitsSpec::default()).await;
                    moved.restore(&held).await.unwrap_or_else(|fault| panic!("deed {at}: {fault}"));
                    assert_eq!(moved.snapshot(SnapshotMode::Incremental).await, [], "deed {at}: nothing has changed");
                }
            }
        }
    }
}

#[test]
fn every_shape_goes_on_in_a_fresh_instance_as_if_nothing_had_happened() {
    for text in [twice(), shared(), nested()] {
        let subject = Subject::new(&text);
        let mut runner =
            proptest::test_runner::TestRunner::new(ProptestConfig { cases: 48, ..ProptestConfig::default() });
        let result = runner.run(&deeds(), |deeds| {
            run(goes_on_as_if_nothing_had_happened(&subject, &deeds));
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn every_core_instance_with_state_is_found_once() {
    for (text, cells, memories) in [(twice(), 2, 2), (shared(), 2, 2), (nested(), 5, 5)] {
        let subject = Subject::new(&text);
        assert_eq!(subject.accessors.cells.len(), cells);
        assert_eq!(subject.accessors.cells.iter().map(|cell| cell.memories.len()).sum::<usize>(), memories);
    }
}

#[test]
fn an_image_costs_what_has_changed_and_nothing_when_nothing_has() {
    run(async {
        let subject = Subject::new(&twice());
        let mut running = subject.start(LimitsSpec::default()).await;
        for x in 0..200 {
            running.step(0, x * 7 + 1).await;
        }
        let bytes = |written: &[(SegmentKind, Vec<u8>)]| written.iter().map(|(_, data)| data.len()).sum::<usize>();
        let base = running.snapshot(SnapshotMode::Full).await;
        assert!(base.iter().all(|(kind, _)| *kind == SegmentKind::Base));
        assert_eq!(running.snapshot(SnapshotMode::Incremental).await, []);
        running.step(1, 1).await;
        let delta = running.snapshot(SnapshotMode::Incremental).await;
        assert!(delta.iter().all(|(kind, _)| *kind == SegmentKind::Delta));
        // One store to memory: a page, or two if it lies across them.
        assert!(bytes(&delta) < 2 * PAGE_BYTES + 300, "{}", bytes(&delta));
        assert!(bytes(&base) > 20 * PAGE_BYTES, "{}", bytes(&base));
    });
}

#[test]
fn an_image_that_does_not_fit_is_refused_with_what_does_not_fit() {
    run(async {
        let subject = Subject::new(&twice());
        let mut running = subject.start(LimitsSpec::default()).await;
        for x in 0..20 {
            running.step(0, x * 11).await;
        }
        let base = running.snapshot(SnapshotMode::Full).await;
        let Ok(Part::Header(header)) = decode(&base[0].1) else { panic!("it begins with its header") };
        assert_eq!(header.memories, [12, 1], "the first has grown as far as it can");
        let with = |change: &dyn Fn(&mut Header)| {
            let mut header = header.clone();
            change(&mut header);
            let mut chunks = base.clone();
            chunks[0].1 = header.encode();
            chunks
        };
        let cases: Vec<(&str, Chunks)> = vec![
            ("of version 9", with(&|header| header.version = 9)),
            ("another `config`", with(&|header| header.config = [8; 32])),
            ("3 memories and 12 globals, and the plugin has 2 and 12", with(&|header| header.memories.push(1))),
            ("2 memories and 11 globals", with(&|header| header.globals.truncate(11))),
            ("memory cannot shrink", with(&|header| header.memories[1] = 0)),
            ("limit of 768 KiB memory: 832 KiB", with(&|header| header.memories[0] = 13)),
            ("of memory 0, which has 32 pages of 4 KiB", with(&|header| header.memories[0] = 2)),
            ("its state holds no image", Vec::new()),
            ("an image that has not begun", base[1..].to_vec()),
            ("chunk 0 of its state is no image: it begins with 120", vec![(SegmentKind::Base, b"xyz".to_vec())]),
        ];
        for (part, chunks) in cases {
            let mut fresh = subject.start(LimitsSpec::default()).await;
            let fault = fresh.restore(&chunks).await.expect_err(part);
            assert!(fault.contains(part), "{part}: {fault}");
        }
        let other = Subject::new(&shared());
        let fault = other.start(LimitsSpec::default()).await.restore(&base).await.expect_err("of another plugin");
        assert!(fault.contains("it is of another plugin"), "{fault}");
        // The limits of the node hold for it, too.
        let limits = LimitsSpec { memory_bytes: 5 << 16, ..LimitsSpec::default() };
        let fault = subject.start(limits).await.restore(&base).await.expect_err("too much memory");
        assert!(fault.contains("limit of 320 KiB memory: 832 KiB"), "{fault}");
    });
}

#[test]
fn pages_that_a_fresh_instance_fills_and_the_image_does_not_are_cleared() {
    run(async {
        let subject = Subject::new(&twice());
        let mut running = subject.start(LimitsSpec::default()).await;
        // Divisible by five: the first two pages, with data of the module, are filled with zeros.
        running.step(0, 5).await;
        let base = running.snapshot(SnapshotMode::Full).await;
        let mut fresh = subject.start(LimitsSpec::default()).await;
        fresh.restore(&base).await.expect("it fits");
        assert_eq!(fresh.snapshot(SnapshotMode::Full).await, base);
        assert_eq!(fresh.step(0, 1).await, running.step(0, 1).await);
    });
}

#[test]
fn pieces_cover_a_memory_in_order_and_leave_room_for_what_is_borrowed() {
    for wasm_pages in [0, 1, 2, 15, 16, 17, 64, 65_536] {
        let size = u64::from(wasm_pages) * WASM_PAGE_BYTES;
        let mut next = 0;
        for (start, len) in pieces(wasm_pages) {
            assert_eq!(start, next);
            assert!(len > 0 && len <= PIECE_BYTES && len % PAGE_BYTES as u64 == 0);
            assert!(start >= BORROWED_BYTES || start + len <= size - BORROWED_BYTES);
            next = start + len;
        }
        assert_eq!(next, size);
    }
}

/// A component that makes resources: `one` makes one and drops the one before, `two` drops the last. Its numbers are part of its answers.
const HOLDS: &str = r#"(component
  (type $r (resource (rep i32)))
  (core func $new (canon resource.new $r)) (core func $drop (canon resource.drop $r))
  (core module $m
    (import "r" "new" (func $new (param i32) (result i32))) (import "r" "drop" (func $drop (param i32)))
    (global $held (mut i32) (i32.const 0))
    (func $let_go (if (global.get $held) (then (call $drop (global.get $held)))) (global.set $held (i32.const 0)))
    (func (export "one") (param $x i32) (result i64) (local $new i32)
      (local.set $new (call $new (local.get $x))) (call $let_go) (global.set $held (local.get $new))
      (i64.extend_i32_u (local.get $new)))
    (func (export "two") (param i32) (result i64) (call $let_go) (i64.const 0)))
  (core instance $i (instantiate $m (with "r" (instance (export "new" (func $new)) (export "drop" (func $drop))))))
  (func $one (param "x" u32) (result u64) (canon lift (core func $i "one"))) (export "one" (func $one))
  (func $two (param "x" u32) (result u64) (canon lift (core func $i "two"))) (export "two" (func $two)))"#;

#[test]
fn a_handle_that_is_held_between_two_calls_is_refused_and_one_that_was_dropped_is_not() {
    run(async {
        let subject = Subject::new(HOLDS);
        let mut running = subject.start(LimitsSpec::default()).await;
        let base = running.snapshot(SnapshotMode::Full).await;
        for _ in 0..3 {
            running.step(0, 7).await;
            running.step(0, 7).await;
            let fault = running.image.snapshot(&mut running.store, SnapshotMode::Full, &mut Written::default()).await;
            let Err(ImageFault::Unfit(what)) = fault else { panic!("it holds a handle: {fault:?}") };
            assert!(what.contains("it holds 1 handles of resources between two calls"), "{what}");
            running.step(1, 0).await;
            assert_eq!(running.snapshot(SnapshotMode::Full).await, base);
        }
        // The next numbers are those of a fresh instance.
        let mut fresh = subject.start(LimitsSpec::default()).await;
        fresh.restore(&base).await.expect("it fits");
        for _ in 0..3 {
            assert_eq!(fresh.step(0, 1).await, running.step(0, 1).await);
        }
    });
}
