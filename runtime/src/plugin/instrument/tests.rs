//! What can be instrumented and what is refused, by components written for one reason each. That an image of what was instrumented
//! is right is shown in `image/tests.rs`.

use super::*;

fn of(text: &str) -> Result<Vec<u8>, Refusal> {
    instrument(&wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// A component around a core module.
fn around(module: &str) -> String {
    format!("(component (core module $m {module}) (core instance (instantiate $m)))")
}

/// The names of all exports of a component's root.
fn exports(component: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for section in sections(component).unwrap() {
        if section.id == 11 {
            for export in wasmparser::ComponentExportSectionReader::new(section.reader()).unwrap() {
                names.push(export.unwrap().name.name.to_owned());
            }
        }
    }
    names
}

#[test]
fn state_that_an_image_cannot_hold_is_refused_with_place_and_reason() {
    let table = "(table $t 4 funcref) (func $f) (elem $e func $f) (memory 1) (data $d \"x\")";
    let cases = [
        ("table.set", format!("{table} (func (export \"x\") (table.set $t (i32.const 0) (ref.null func)))")),
        ("table.grow", format!("{table} (func (export \"x\") (drop (table.grow $t (ref.null func) (i32.const 1))))")),
        (
            "table.fill",
            format!("{table} (func (export \"x\") (table.fill $t (i32.const 0) (ref.null func) (i32.const 1)))"),
        ),
        (
            "table.copy",
            format!("{table} (func (export \"x\") (table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 1)))"),
        ),
        (
            "table.init",
            format!("{table} (func (export \"x\") (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1)))"),
        ),
        ("elem.drop", format!("{table} (func (export \"x\") (elem.drop $e))")),
        ("data.drop", format!("{table} (func (export \"x\") (data.drop $d))")),
        // Called by what is called.
        (
            "function 3 changes a table while it runs (table.set)",
            format!(
                "{table} (func (export \"x\") (call $g)) (func $g (call $h)) \
                 (func $h (table.set $t (i32.const 0) (ref.null func)))"
            ),
        ),
        // By a tail call, through a table, through a reference.
        (
            "table.set",
            format!(
                "{table} (func (export \"x\") (return_call $g)) (func $g (table.set $t (i32.const 0) (ref.null func)))"
            ),
        ),
        (
            "table.set",
            format!(
                "{table} (elem (table $t) (i32.const 1) func $g) (func $g (table.set $t (i32.const 0) (ref.null func)))"
            ),
        ),
        (
            "table.set",
            format!("{table} (global funcref (ref.func $g)) (func $g (table.set $t (i32.const 0) (ref.null func)))"),
        ),
        // The start function can be called again if it is exported.
        (
            "table.set",
            format!("{table} (func $s (export \"s\") (table.set $t (i32.const 0) (ref.null func))) (start $s)"),
        ),
        (
            "global 1 can change and is a reference",
            "(global i32 (i32.const 1)) (global (mut funcref) (ref.null func))".into(),
        ),
        ("shared memory", "(memory 1 1 shared)".into()),
        ("64-bit addresses", "(memory i64 1)".into()),
        ("begin with \"weir-image:\" are weir's own", "(memory (export \"weir-image:m0\") 1)".into()),
    ];
    for (part, module) in cases {
        let refusal = of(&around(&module)).expect_err(part);
        let text = refusal.to_string();
        assert!(text.starts_with("core module 0: ") && text.contains(part), "{text}");
        assert!(!refusal.remedy().is_empty());
    }
}

#[test]
fn what_only_the_start_function_does_to_tables_is_no_state() {
    let module = "(table $t 4 funcref) (memory 1) (func $f) (elem $e func $f) (data $d \"x\") \
                  (func $s (call $g) (elem.drop $e) (data.drop $d)) \
                  (func $g (table.set $t (i32.const 0) (ref.func $f))) (start $s) \
                  (func (export \"x\") (call_indirect $t (i32.const 0)))";
    assert_eq!(exports(&of(&around(module)).expect("a fresh instance has done the same")), [EXPORT]);
}

#[test]
fn what_comes_from_where_it_cannot_be_followed_is_refused() {
    let cases = [
        (
            "component 0: core instance 0 is made of a core module that is handed in",
            "(component $outer (core module $m (memory 1)) \
               (component $c (import \"m\" (core module $m)) (core instance (instantiate $m))) \
               (instance (instantiate $c (with \"m\" (core module $m)))))",
        ),
        (
            "core instance 0 is made of a core module that is handed in",
            "(component (component $c (core module $m (memory 1)) (export \"m\" (core module $m))) \
               (instance $i (instantiate $c)) (alias export $i \"m\" (core module $m)) (core instance (instantiate $m)))",
        ),
        (
            "component 1: instance 0 is made of a component that is handed in",
            "(component (component $c (core module $m (memory 1)) (core instance (instantiate $m))) \
               (component $d (import \"c\" (component $c)) (instance (instantiate $c))) \
               (instance (instantiate $d (with \"c\" (component $c)))))",
        ),
        (
            "it exports \"weir-image\", a name that is weir's own",
            "(component (instance $i) (export \"weir-image\" (instance $i)))",
        ),
        (
            "component 0: it exports \"weir-image\"",
            "(component (component (instance $i) (export \"weir-image\" (instance $i))))",
        ),
    ];
    for (part, text) in cases {
        let refusal = of(text).expect_err(part).to_string();
        assert!(refusal.starts_with(part) || refusal.contains(part), "{refusal}");
    }
}

#[test]
fn a_component_without_state_comes_back_as_it_is() {
    for text in [
        "(component)",
        "(component (core module $m (func (export \"f\"))) (core instance (instantiate $m)))",
        // A module that is never instantiated remembers nothing.
        "(component (component (core module (memory 1))))",
        "(component (core module $m (global i32 (i32.const 1)) (table 1 funcref)) (core instance (instantiate $m)))",
    ] {
        let component = wat::parse_str(text).unwrap();
        let instrumented = instrument(&component).expect("there is nothing to refuse");
        assert_eq!(exports(&instrumented), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_globals_values_beyond_the_limit_are_refused_with_both_numbers() {
    let globals = |n: usize| "(global (mut v128) (v128.const i64x2 0 0))".repeat(n);
    assert!(of(&around(&globals(8_192))).is_ok());
    let refusal = of(&around(&globals(8_193))).expect_err("one too many").to_string();
    assert!(refusal.contains("8193 mutable globals, which take 16386 slots; the most is 16384"), "{refusal}");
}

#[test]
fn no_damage_to_a_component_makes_instrumenting_it_panic() {
    let text =
        around("(memory 1) (table 2 funcref) (func $f) (elem func $f) (global (mut i64) (i64.const 1)) (data \"x\")");
    let component = wat::parse_str(&text).unwrap();
    for at in 8..component.len() {
        for bits in [0x01, 0x11, 0x80, 0xff] {
            let mut damaged = component.clone();
            damaged[at] ^= bits;
            let _ = instrument(&damaged);
        }
        let _ = instrument(&component[..at]);
    }
}
