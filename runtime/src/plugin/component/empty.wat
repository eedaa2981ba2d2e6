;; An operator that does nothing: what it costs is what handing records to a guest costs, and nothing else.
;;
;; It takes memory from one end to the other, and begins anew when a call is over.
(module
  (memory (export "memory") 2)
  (global $top (mut i32) (i32.const 65536))

  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local $missing i32)
    (local.set $at
      (i32.and
        (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $top (i32.add (local.get $at) (local.get $size)))
    (local.set $missing (i32.sub (global.get $top) (i32.shl (memory.size) (i32.const 16))))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then (drop (memory.grow (i32.add (i32.shr_u (local.get $missing) (i32.const 16)) (i32.const 1))))))
    (local.get $at))

  ;; Where 16 is zero: ok and done.
  (func $done (result i32)
    (global.set $top (i32.const 65536))
    (i32.const 16))

  (func (export "weir:plugin/processor@0.1.0#describe") (result i32) (i32.const 1024))
  (func (export "weir:plugin/processor@0.1.0#open")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32) (result i32)
    (call $done))
  (func (export "weir:plugin/processor@0.1.0#process") (param i32) (result i32) (call $done))
  (func (export "weir:plugin/processor@0.1.0#advance") (param i64) (result i32) (call $done))
  (func (export "weir:plugin/processor@0.1.0#wake") (result i32) (call $done))
  (func (export "weir:plugin/processor@0.1.0#finish") (param i32) (result i32) (call $done))
  (func (export "weir:plugin/processor@0.1.0#resume") (result i32) (call $done))

  ;; 900: "empty", 908: "1.0.0", 916: "in"
  (data (i32.const 900) "empty\00\00\001.0.0\00\00\00in")
  ;; The input: name, summary, keyed.
  (data (i32.const 940) "\94\03\00\00\02\00\00\00" "\00\00\00\00\00\00\00\00" "\01")
  ;; The descriptor: name, version, summary, one input, no outputs, stateless; the rest is 0.
  (data (i32.const 1024)
    "\84\03\00\00\05\00\00\00" "\8c\03\00\00\05\00\00\00" "\00\00\00\00\00\00\00\00"
    "\ac\03\00\00\01\00\00\00" "\00\00\00\00\00\00\00\00" "\00")
)
