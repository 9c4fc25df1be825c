//! No bytes panic the reader of WebSocket handshakes, and what follows a request is left alone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_transport::ws::handshake::{Origins, parse};

const HEAD_BYTES_MAX: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let origins = Origins::These(vec!["https://app.example".into()]);
    match parse(data, HEAD_BYTES_MAX, &origins, data.first().is_some_and(|byte| byte % 2 == 0)) {
        Ok(None) => assert!(data.len() < HEAD_BYTES_MAX),
        Ok(Some(upgrade)) => {
            assert!(upgrade.head_len <= data.len() && upgrade.head_len <= HEAD_BYTES_MAX);
            assert!(upgrade.response.starts_with(b"HTTP/1.1 101 "));
            // No byte of the client stands in the answer but those of its protocol, which are among
            // two.
            let lines = upgrade.response.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines, 6);
        }
        Err(refusal) => assert!(refusal.response.starts_with(b"HTTP/1.1 4")),
    }
});
