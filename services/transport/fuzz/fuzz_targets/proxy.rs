//! No bytes panic the reader of PROXY headers, and a header means the same however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_transport::origin::Origin;
use millrace_transport::proxy::{HEADER_BYTES_MAX, parse};

fuzz_target!(|data: &[u8]| {
    let whole = parse(data);
    if let Ok(Some(header)) = &whole {
        assert!(header.size <= data.len() && header.size <= HEADER_BYTES_MAX);
        let size: usize = header.tlvs.iter().map(|(_, value)| 3 + value.len()).sum();
        assert!(size <= header.size);
        let _ = Origin::of(header);
        // Bytes after the header change nothing.
        assert_eq!(parse(&data[..header.size]).unwrap().unwrap(), *header);
    }
    if data.len() >= HEADER_BYTES_MAX {
        assert_ne!(whole, Ok(None));
    }
    // A header that is refused when complete may be refused earlier; an accepted one is not.
    for cut in [1, 12, 15, 16, data.len() / 2, data.len().saturating_sub(1)] {
        let Some(part) = data.get(..cut) else { continue };
        match (&whole, parse(part)) {
            (Ok(Some(header)), Ok(None)) => assert!(cut < header.size),
            (Ok(Some(header)), Ok(Some(of_part))) => assert_eq!(*header, of_part),
            (Ok(None), earlier) => assert_eq!(earlier, Ok(None)),
            (Ok(Some(_)), Err(error)) => panic!("{error} of a part of a good header"),
            (Err(_), _) => {}
        }
    }
});
