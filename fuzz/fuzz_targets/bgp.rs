#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir::route::bgp::rehearse(bytes));
