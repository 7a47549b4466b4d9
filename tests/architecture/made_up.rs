//! The reader and the rules on small made-up crates: what the test of the house would miss, this one shows.

use crate::graph::{Breach, climbs, complaints, knots};
use crate::modules::Crate;
use crate::resolve::Arrows;
use crate::tokens::{tokens, without_tests};

fn arrows(files: &[(&str, &str)]) -> Arrows {
    let sources = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    Crate::read(&sources, false).arrows()
}

/// Asserts that the arrows of a crate, without those of its root, are these.
fn assert_arrows(files: &[(&str, &str)], expected: &[(&str, &str)]) {
    let arrows = arrows(files);
    let found = arrows
        .keys()
        .map(|(here, there)| (here.as_str(), there.as_str()));
    assert_eq!(
        found
            .filter(|(here, _)| *here != "lib.rs")
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_re_export_leads_to_the_file_that_defines() {
    let inner = ("b/inner.rs", "pub struct Thing; pub fn made() {}");
    let b = (
        "b/mod.rs",
        "mod inner; mod user; pub use inner::{Thing as Renamed, made};",
    );
    let user = ("b/user.rs", "use super::Renamed;");
    let a = ("a.rs", "use crate::Short; fn f(_: Short) {}");
    let lib = ("lib.rs", "mod a; mod b; pub use b::Renamed as Short;");
    // b/mod.rs only re-exports, within its room
    assert_arrows(
        &[lib, a, b, inner, user],
        &[("a.rs", "b/inner.rs"), ("b/user.rs", "b/inner.rs")],
    );
    // a file that uses what it re-exports needs it
    let b = (
        "b/mod.rs",
        "mod inner; pub use inner::{Thing, made}; fn f() { made() }",
    );
    assert_arrows(
        &[("lib.rs", "mod b;"), b, inner],
        &[("b/mod.rs", "b/inner.rs")],
    );
}

#[test]
fn a_re_export_of_another_room_counts() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub use crate::b::T;"),
        ("b.rs", "pub struct T;"),
    ];
    assert_arrows(&files, &[("a.rs", "b.rs")]);
}

#[test]
fn paths_within_code_count() {
    let lib = ("lib.rs", "mod a; mod b; mod c;");
    let b = ("b/mod.rs", "pub mod x { pub fn f() {} } pub mod y;");
    let rest = [
        (
            "b/y.rs",
            "pub enum E { V } pub const LIMIT: u8 = 1; pub fn twice() {}",
        ),
        ("c.rs", "pub fn g() {}"),
    ];
    for (code, expected) in [
        ("fn h() { crate::b::x::f() }", Some("b/mod.rs")),
        ("fn h() -> crate::b::y::E { todo!() }", Some("b/y.rs")),
        (
            "use crate::b::{self as other, x}; fn h() { other::y::E::V; }",
            Some("b/y.rs"),
        ),
        ("use crate::b::y::E::V;", Some("b/y.rs")),
        ("use crate::b; const N: u8 = b::y::LIMIT;", Some("b/y.rs")),
        (
            "mod inner { fn h() { super::super::c::g() } }",
            Some("c.rs"),
        ),
        ("macro_rules! m { () => { $crate::c::g() } }", Some("c.rs")),
        ("use crate::b::y::*; fn h() { 0..twice() }", Some("b/y.rs")),
        (
            "use crate::b::y::*; impl S { fn twice() {} } fn h() { twice() }",
            Some("b/y.rs"),
        ),
        (
            "use crate::b::y::*; fn h(it: T) { it.twice(); 'E: loop {} }",
            None,
        ),
        ("use crate::b::y;", None),
        ("use std::c::g; use ::c::g as other; fn h() { g() }", None),
    ] {
        let expected: Vec<_> = expected.map(|there| ("a.rs", there)).into_iter().collect();
        assert_arrows(&[lib, ("a.rs", code), b, rest[0], rest[1]], &expected);
    }
}

#[test]
fn items_of_a_mod_file_belong_to_it() {
    let files = [
        ("lib.rs", "mod b;"),
        ("b/mod.rs", "mod c; struct T;"),
        ("b/c.rs", "use super::T;"),
    ];
    assert_arrows(&files, &[("b/c.rs", "b/mod.rs")]);
}

#[test]
fn modules_with_a_given_path_are_found_under_both_names() {
    let lib = ("lib.rs", "mod a; mod low; use low::cpu;");
    let low = (
        "low.rs",
        "#[doc(hidden)] #[path = \"cpu/mod.rs\"] pub mod cpu;",
    );
    let cpu = [
        ("cpu/mod.rs", "mod step; pub use step::advance;"),
        ("cpu/step.rs", "pub fn advance() {}"),
    ];
    for path in ["crate::cpu", "crate::low::cpu"] {
        let a = format!("fn f() {{ {path}::advance() }}");
        assert_arrows(
            &[lib, low, cpu[0], cpu[1], ("a.rs", &a)],
            &[("a.rs", "cpu/step.rs")],
        );
    }
}

#[test]
fn globs_bring_what_their_reader_may_see() {
    let lib = ("lib.rs", "mod a; mod b;");
    let inner = ("b/inner.rs", "pub struct T; use super::*; fn f(_: Far) {}");
    let far = ("b/far.rs", "pub struct Far;");
    let a = ("a.rs", "use crate::b::*; fn f(_: T, _: Far) {}");
    // `Far` is private to b: its child sees it through a glob, and a does not
    let b = (
        "b/mod.rs",
        "mod inner; mod far; pub use inner::*; use far::Far;",
    );
    let own = [("b/inner.rs", "b/far.rs"), ("b/mod.rs", "b/far.rs")];
    assert_arrows(
        &[lib, a, b, inner, far],
        &[("a.rs", "b/inner.rs"), own[0], own[1]],
    );
    // an import from another crate hides what a glob brings
    let a = ("a.rs", "use crate::b::*; use other::T; fn f(_: T) {}");
    assert_arrows(&[lib, a, b, inner, far], &own);
}

#[test]
fn a_module_and_a_function_may_share_a_name() {
    let lib = ("lib.rs", "mod a; mod b;");
    let b = ("b/mod.rs", "pub mod check; pub use check::check;");
    let check = ("b/check.rs", "pub fn check() {} pub fn other() {}");
    for code in [
        "use crate::b::check; fn f() { check() }",
        "use crate::b::check; fn f() { check::other() }",
    ] {
        assert_arrows(&[lib, ("a.rs", code), b, check], &[("a.rs", "b/check.rs")]);
    }
}

#[test]
fn what_a_macro_makes_belongs_to_the_file_that_calls_it() {
    let b = ("b/mod.rs", "mod flag; pub use flag::Flags;");
    let flag = ("b/flag.rs", "bitflags! { pub struct Flags: u8 {} }");
    let a = ("a.rs", "use crate::b::Flags;");
    assert_arrows(
        &[("lib.rs", "mod a; mod b;"), a, b, flag],
        &[("a.rs", "b/flag.rs")],
    );
}

#[test]
fn only_code_counts() {
    let lib = ("lib.rs", "mod a; mod b;");
    let b = ("b.rs", "pub fn f() {} pub struct T;");
    for (code, counts) in [
        ("#[cfg(test)] mod tests { use crate::b::T; }", false),
        (
            "#[allow(dead_code)] #[cfg(all(test, feature = \"x\"))] use crate::b::{T, f};",
            false,
        ),
        (
            "#[cfg(any(test, doctest))] pub(crate) fn g<A, B>(_: u8) { crate::b::f() }",
            false,
        ),
        ("#[test] fn g() { crate::b::f() }", false),
        ("mod inner { #![cfg(test)] use crate::b::T; }", false),
        (
            "struct S { #[cfg(test)] pub(crate) it: crate::b::T, other: u8 }",
            false,
        ),
        ("struct S { #[cfg(test)] it: u8, other: crate::b::T }", true),
        ("// use crate::b::T;\n/* /* */ crate::b::f() */", false),
        (
            "const S: &str = \"crate::b::f() \\\" crate::b::f()\"; const R: &[u8] = br#\"\" crate::b::f()\"#;",
            false,
        ),
        (
            "#[cfg(test)] const S: [u8; 2] = [1, 2]; use crate::b::T;",
            true,
        ),
        ("#[cfg(not(test))] use crate::b::T;", true),
        ("#[cfg(any(test, feature = \"x\"))] use crate::b::T;", true),
        ("#[cfg_attr(test, allow(dead_code))] use crate::b::T;", true),
        (
            "const C: [char; 2] = ['\"', '\\'']; fn g<'a>() { crate::b::f() }",
            true,
        ),
    ] {
        let expected: &[_] = if counts { &[("a.rs", "b.rs")] } else { &[] };
        assert_arrows(&[lib, ("a.rs", code), b], expected);
    }
    assert_eq!(
        without_tests(&tokens("a r#type 1.5 #[test] fn f() {} ::")),
        ["a", "type", "1", ".", "5", "::"]
    );
}

/// Rooms a and b import each other; c imports a.
fn three_rooms() -> Arrows {
    arrows(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a/mod.rs", "mod one; mod two; pub struct A;"),
        ("a/one.rs", "use crate::b::B;"),
        ("a/two.rs", "use crate::b::B; use super::one;"),
        ("b.rs", "pub struct B(crate::a::A);"),
        ("c.rs", "fn f() { crate::a::A; }"),
    ])
}

fn names_and_sizes(found: &[Breach]) -> Vec<(&str, usize)> {
    found
        .iter()
        .map(|breach| (breach.name.as_str(), breach.size))
        .collect()
}

#[test]
fn climbing_is_seen() {
    let climbs = |floors: &[&[&str]]| climbs(&three_rooms(), floors);
    assert_eq!(
        names_and_sizes(&climbs(&[&["a"], &["b"], &["c"]])),
        [("a -> b", 2)]
    );
    assert_eq!(
        names_and_sizes(&climbs(&[&["b"], &["a"], &["c"]])),
        [("b -> a", 1)]
    );
    assert_eq!(
        names_and_sizes(&climbs(&[&["b"], &["a", "c"]])),
        [("b -> a", 1), ("c -> a", 1)]
    );
    assert_eq!(
        names_and_sizes(&climbs(&[&["b"], &["a"]])),
        [("b -> a", 1), ("c -> a", 1)]
    );
    assert_eq!(
        climbs(&[&["b"], &["a"], &["c"]])[0].places,
        ["b.rs -> a/mod.rs (crate::a::A)"]
    );
}

#[test]
fn knots_are_seen() {
    let ring = |uses: &[(&str, &str)]| -> Arrows {
        uses.iter()
            .map(|(here, there)| (((*here).to_owned(), (*there).to_owned()), String::new()))
            .collect()
    };
    let three = [
        ("a/1.rs", "a/2.rs"),
        ("a/2.rs", "a/3.rs"),
        ("a/3.rs", "a/1.rs"),
        ("a/3.rs", "b.rs"),
    ];
    assert_eq!(names_and_sizes(&knots(&ring(&three), 2)), [("a", 3)]);
    assert_eq!(knots(&ring(&three), 2)[0].places.len(), 3);
    assert_eq!(knots(&ring(&three), 3), []);
    assert_eq!(knots(&ring(&three[1..]), 1), []);
    let pairs = [
        ("a/4.rs", "a/5.rs"),
        ("a/5.rs", "a/4.rs"),
        ("b.rs", "c.rs"),
        ("c.rs", "b.rs"),
    ];
    let all = [three.as_slice(), &pairs].concat();
    assert_eq!(
        names_and_sizes(&knots(&ring(&all), 1)),
        [("a", 3), ("a 2", 2), ("b + c", 2)]
    );
}

#[test]
fn exceptions_are_as_small_as_what_they_excuse() {
    let found = [("a", 3), ("b", 12)].map(|(name, size)| Breach {
        name: name.to_owned(),
        size,
        places: Vec::new(),
    });
    assert!(complaints("rule", &found, &[("b", 12), ("a", 3)]).is_empty());
    let one = |exceptions: &[(&str, usize)], part: &str| {
        let complaints = complaints("rule", &found, exceptions);
        assert!(
            complaints.len() == 1 && complaints[0].contains(part),
            "{complaints:?}"
        );
    };
    one(&[("a", 3)], "b has 12, and the exceptions allow 0");
    one(
        &[("a", 3), ("b", 11)],
        "b has 12, and the exceptions allow 11",
    );
    one(&[("a", 3), ("b", 13)], "lower the 13");
    one(&[("a", 3), ("b", 12), ("c", 1)], "c keeps the rule");
}
