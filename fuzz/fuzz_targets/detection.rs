#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stripewise_fuzz::run("detection", bytes));
