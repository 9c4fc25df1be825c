//! Fuzzes the parser of WebSocket handshakes: no input panics it, and it never consumes bytes after the
//! request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_transport::ws::handshake::{Origins, parse};

/// Longest request, bytes; small, so that inputs reach the limit.
const HEAD_BYTES_MAX: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let origins = Origins::These(vec!["https://app.example".into()]);
    match parse(data, HEAD_BYTES_MAX, &origins, data.first().is_some_and(|byte| byte % 2 == 0)) {
        Ok(None) => assert!(data.len() < HEAD_BYTES_MAX),
        Ok(Some(upgrade)) => {
            assert!(upgrade.head_len <= data.len() && upgrade.head_len <= HEAD_BYTES_MAX);
            assert!(upgrade.response.starts_with(b"HTTP/1.1 101 "));
            // A client must not add lines to the response: it only selects one of two protocols.
            let lines = upgrade.response.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines, 6);
        }
        Err(refusal) => assert!(refusal.response.starts_with(b"HTTP/1.1 4")),
    }
});
