//! What the targets run is what `cargo test` runs over the corpus: `tests/fuzzed`.

#[path = "../../tests/fuzzed/harness.rs"]
pub mod harness;
#[path = "../../tests/fuzzed/recipes.rs"]
mod recipes;
