//! No bytes panic the decoder of WebSocket frames, and a stream means the same in one read and in
//! many.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use millrace_transport::ws::frames::{ControlFrame, Decoder, FrameError};

/// Longest data frame that is taken, bytes.
const DATA_MAX: u64 = 1 << 40;

#[derive(Debug, Default, PartialEq)]
struct Meaning {
    data: Vec<u8>,
    controls: Vec<String>,
}

fn decode(stream: &[u8], reads: impl Iterator<Item = usize>) -> Result<Meaning, FrameError> {
    let (mut decoder, mut meaning) = (Decoder::default(), Meaning::default());
    let (mut buffer, mut stream): (Vec<u8>, _) = (Vec::new(), stream);
    for len in reads {
        let (now, later) = stream.split_at(len.min(stream.len()));
        buffer.extend_from_slice(now);
        stream = later;
        let mut control = |control: ControlFrame<'_>| {
            meaning.controls.push(format!("{control:?}"));
            ControlFlow::Continue(())
        };
        let decoded = decoder.decode(&mut buffer, DATA_MAX, &mut control);
        if let Some(error) = decoded.error {
            return Err(error);
        }
        assert!(decoded.rest.start == decoded.data && decoded.rest.len() <= 138);
        meaning.data.extend_from_slice(&buffer[..decoded.data]);
        buffer.truncate(decoded.rest.end);
        buffer.drain(..decoded.data);
        if stream.is_empty() {
            break;
        }
    }
    Ok(meaning)
}

fuzz_target!(|data: &[u8]| {
    let Some((lengths, stream)) = data.split_first_chunk::<8>() else { return };
    let whole = decode(stream, std::iter::once(usize::MAX));
    let in_parts = decode(stream, lengths.iter().cycle().map(|len| usize::from(*len).max(1)));
    assert_eq!(whole, in_parts);
});
