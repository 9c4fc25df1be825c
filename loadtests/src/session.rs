//! Ends a connection in order: the broker has read DISCONNECT before the next step begins.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::failure::{Failure, Outcome, While};
use crate::packet;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Reads after which a broker that keeps sending is given up.
const READS_MAX: usize = 10_000;

/// Sends DISCONNECT and waits until the broker has closed the connection.
pub(crate) fn leave(mut stream: TcpStream) -> Outcome<()> {
    stream.write_all(&packet::DISCONNECT).during("sending DISCONNECT")?;
    stream.set_read_timeout(Some(CLOSE_TIMEOUT)).during("setting a time-out")?;
    // A broker that waits for the client to close first sees the end of the stream.
    stream.shutdown(Shutdown::Write).or_else(already_closed).during("closing")?;
    let mut rest = [0; 4096];
    for _ in 0..READS_MAX {
        match stream.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e).during("waiting for the broker to close after DISCONNECT"),
        }
    }
    Err(Failure::new("the broker continues sending after DISCONNECT"))
}

fn already_closed(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == ErrorKind::NotConnected { Ok(()) } else { Err(error) }
}
