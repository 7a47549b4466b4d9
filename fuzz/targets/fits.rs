#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| popfit_fuzz::harness::fits(bytes));
