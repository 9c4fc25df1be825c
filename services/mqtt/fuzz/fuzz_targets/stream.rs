//! A stream gives the same packets, and ends with the same error, however it is cut into reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_mqtt::{DecodeError, frame};

/// Small, so that a packet over it is found often, bytes.
const PACKET_SIZE_MAX: u32 = 1_024;

/// The sizes of the packets that were found, and how the stream ended.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    sizes: Vec<usize>,
    error: Option<DecodeError>,
}

fuzz_target!(|input: (&[u8], &[u8])| {
    let (cuts, stream) = input;
    let whole = receive(std::iter::once(stream));
    assert_eq!(receive(chunks(stream, cuts)), whole);
    assert_eq!(receive(stream.chunks(1)), whole);
});

/// Cuts `stream` into reads of the sizes in `cuts`; the last read is the rest.
fn chunks<'a>(stream: &'a [u8], cuts: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = stream;
    let mut sizes = cuts.iter();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let size = sizes.next().map_or(rest.len(), |&size| usize::from(size).min(rest.len()));
        let (chunk, after) = rest.split_at(size);
        rest = after;
        Some(chunk)
    })
}

fn receive<'a>(reads: impl Iterator<Item = &'a [u8]>) -> Seen {
    let mut seen = Seen::default();
    let mut buf = Vec::new();
    for read in reads {
        buf.extend_from_slice(read);
        loop {
            match frame(&buf, PACKET_SIZE_MAX) {
                Ok(Ok(frame)) => {
                    assert!(frame.size <= buf.len() && frame.size <= PACKET_SIZE_MAX as usize);
                    assert!(buf[..frame.size].ends_with(frame.body));
                    seen.sizes.push(frame.size);
                    let size = frame.size;
                    buf.drain(..size);
                }
                Ok(Err(needed)) => {
                    assert!(needed > buf.len() && needed <= PACKET_SIZE_MAX as usize + 5);
                    break;
                }
                Err(error) => {
                    seen.error = Some(error);
                    return seen;
                }
            }
        }
    }
    seen
}
