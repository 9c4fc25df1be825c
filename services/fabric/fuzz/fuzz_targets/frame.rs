//! No bytes panic the decoder of frames, and what decodes is written and read again as the same
//! frame.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| millrace_fabric::fuzzing::frame(data));
