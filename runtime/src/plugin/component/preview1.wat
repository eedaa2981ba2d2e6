;; What `wasi_snapshot_preview1` is to a plugin: the C libraries of C, C++, Go and others ask for it, whether the plugin uses it or not.
;;
;; It imports nothing but `weir:plugin/log`, and that only where the plugin writes: lines on standard output are logged as info, on standard error as
;; warnings. The clock begins at a fixed time and moves by a microsecond each time it is read, random bytes come from a fixed seed, there are
;; no arguments, no environment, no files and no sockets: two runs see the same. `weir:plugin/timers` has the time.
;;
;; Functions answer the error numbers of the interface: 8 (badf) for what is not open, 52 (nosys) for what is not there, 70 (spipe) for seeking.
;; wit-component leaves out those that a plugin does not import.
(module
  (import "env" "memory" (memory 0))
  (import "weir:plugin/log@0.1.0" "write" (func $log (param i32 i32 i32)))

  (global $now (mut i64) (i64.const 1700000000000000000))
  (global $random (mut i64) (i64.const 0x9e3779b97f4a7c15))

  ;; How many bytes the UTF-8 character at $p takes that ends before $end; 0 if there is none.
  (func $character (param $p i32) (param $end i32) (result i32)
    (local $first i32) (local $second i32) (local $length i32) (local $low i32) (local $high i32)
    (local.set $first (i32.load8_u (local.get $p)))
    (if (i32.lt_u (local.get $first) (i32.const 0x80)) (then (return (i32.const 1))))
    (if (i32.lt_u (local.get $first) (i32.const 0xc2)) (then (return (i32.const 0))))
    (if (i32.gt_u (local.get $first) (i32.const 0xf4)) (then (return (i32.const 0))))
    (local.set $length
      (i32.add (i32.const 2)
        (i32.add (i32.ge_u (local.get $first) (i32.const 0xe0)) (i32.ge_u (local.get $first) (i32.const 0xf0)))))
    (if (i32.gt_u (local.get $length) (i32.sub (local.get $end) (local.get $p))) (then (return (i32.const 0))))
    ;; The second byte has narrower bounds after four of the first ones: no overlong forms, surrogates, or numbers that are too large.
    (local.set $low (i32.const 0x80))
    (local.set $high (i32.const 0xbf))
    (if (i32.eq (local.get $first) (i32.const 0xe0)) (then (local.set $low (i32.const 0xa0))))
    (if (i32.eq (local.get $first) (i32.const 0xed)) (then (local.set $high (i32.const 0x9f))))
    (if (i32.eq (local.get $first) (i32.const 0xf0)) (then (local.set $low (i32.const 0x90))))
    (if (i32.eq (local.get $first) (i32.const 0xf4)) (then (local.set $high (i32.const 0x8f))))
    (local.set $second (i32.load8_u offset=1 (local.get $p)))
    (if (i32.lt_u (local.get $second) (local.get $low)) (then (return (i32.const 0))))
    (if (i32.gt_u (local.get $second) (local.get $high)) (then (return (i32.const 0))))
    (if (i32.gt_u (local.get $length) (i32.const 2)) (then
      (if (i32.ne (i32.and (i32.load8_u offset=2 (local.get $p)) (i32.const 0xc0)) (i32.const 0x80)) (then (return (i32.const 0))))))
    (if (i32.gt_u (local.get $length) (i32.const 3)) (then
      (if (i32.ne (i32.and (i32.load8_u offset=3 (local.get $p)) (i32.const 0xc0)) (i32.const 0x80)) (then (return (i32.const 0))))))
    (local.get $length))

  ;; Logs the bytes from $p to $end, if there are any.
  (func $say (param $level i32) (param $p i32) (param $end i32)
    (if (i32.ne (local.get $p) (local.get $end)) (then
      (call $log (local.get $level) (local.get $p) (i32.sub (local.get $end) (local.get $p))))))

  ;; Logs what was written, a message a line. Bytes that are no UTF-8 are left out, and what is around them becomes two messages.
  (func $lines (param $level i32) (param $p i32) (param $end i32)
    (local $from i32) (local $length i32)
    (local.set $from (local.get $p))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
      (local.set $length (call $character (local.get $p) (local.get $end)))
      (if (i32.or (i32.eqz (local.get $length)) (i32.eq (i32.load8_u (local.get $p)) (i32.const 10))) (then
        (call $say (local.get $level) (local.get $from) (local.get $p))
        (local.set $p (i32.add (local.get $p) (i32.const 1)))
        (local.set $from (local.get $p))
        (br $next)))
      (local.set $p (i32.add (local.get $p) (local.get $length)))
      (br $next)))
    (call $say (local.get $level) (local.get $from) (local.get $end)))

  (func (export "fd_write") (param $fd i32) (param $iovs i32) (param $count i32) (param $written i32) (result i32)
    (local $level i32) (local $all i32) (local $p i32) (local $length i32)
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1)) (then (return (i32.const 8))))
    ;; info is 2 in the contract's enum, warn 3
    (local.set $level (i32.add (local.get $fd) (i32.const 1)))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (local.set $p (i32.load (local.get $iovs)))
      (local.set $length (i32.load offset=4 (local.get $iovs)))
      (call $lines (local.get $level) (local.get $p) (i32.add (local.get $p) (local.get $length)))
      (local.set $all (i32.add (local.get $all) (local.get $length)))
      (local.set $iovs (i32.add (local.get $iovs) (i32.const 8)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
    (i32.store (local.get $written) (local.get $all))
    (i32.const 0))

  (func (export "args_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "args_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (func (export "environ_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))

  (func (export "clock_res_get") (param i32) (param $to i32) (result i32)
    (i64.store (local.get $to) (i64.const 1000))
    (i32.const 0))
  (func (export "clock_time_get") (param i32 i64) (param $to i32) (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $to) (global.get $now))
    (i32.const 0))
  ;; xorshift64
  (func (export "random_get") (param $to i32) (param $count i32) (result i32)
    (local $x i64)
    (local.set $x (global.get $random))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
      (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
      (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17))))
      (i64.store8 (local.get $to) (local.get $x))
      (local.set $to (i32.add (local.get $to) (i32.const 1)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
    (global.set $random (local.get $x))
    (i32.const 0))

  ;; Nothing ever happens: each subscription is answered with an event at once, and one of a clock that names a span moves the clock by it.
  (func (export "poll_oneoff") (param $in i32) (param $out i32) (param $count i32) (param $events i32) (result i32)
    (i32.store (local.get $events) (local.get $count))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (i64.store (local.get $out) (i64.load (local.get $in)))
      (i64.store offset=8 (local.get $out) (i64.const 0))
      (i64.store offset=16 (local.get $out) (i64.const 0))
      (i64.store offset=24 (local.get $out) (i64.const 0))
      (i32.store8 offset=10 (local.get $out) (i32.load8_u offset=8 (local.get $in)))
      (if (i32.eqz (i32.load8_u offset=8 (local.get $in))) (then
        (if (i32.eqz (i32.and (i32.load16_u offset=40 (local.get $in)) (i32.const 1))) (then
          (global.set $now (i64.add (global.get $now) (i64.load offset=24 (local.get $in))))))))
      (local.set $in (i32.add (local.get $in) (i32.const 48)))
      (local.set $out (i32.add (local.get $out) (i32.const 32)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next)))
    (i32.const 0))

  (func (export "sched_yield") (result i32) (i32.const 0))
  (func (export "proc_exit") (param i32) (unreachable))
  (func (export "proc_raise") (param i32) (result i32) (unreachable))

  ;; The standard streams are terminals, so that C libraries write line by line; nothing else is open.
  (func (export "fd_fdstat_get") (param $fd i32) (param $to i32) (result i32)
    (if (i32.gt_u (local.get $fd) (i32.const 2)) (then (return (i32.const 8))))
    (i64.store (local.get $to) (i64.const 2))
    (i64.store offset=8 (local.get $to) (i64.const 0))
    (i64.store offset=16 (local.get $to) (i64.const 0))
    (i32.const 0))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 0))
  (func (export "fd_close") (param i32) (result i32) (i32.const 0))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 70))
  (func (export "fd_tell") (param i32 i32) (result i32) (i32.const 70))
  (func (export "fd_read") (param i32 i32 i32) (param $read i32) (result i32)
    (i32.store (local.get $read) (i32.const 0))
    (i32.const 0))

  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_renumber") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_datasync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_sync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (i32.const 8))

  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 52))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 52))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_shutdown") (param i32 i32) (result i32) (i32.const 52))
)
