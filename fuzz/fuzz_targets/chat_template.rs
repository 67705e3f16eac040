#![no_main]

use libfuzzer_sys::fuzz_target;
use zen_edge_tests::fuzzing;

fuzz_target!(|data: &[u8]| fuzzing::chat_template(data));
