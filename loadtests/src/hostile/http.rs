//! The few HTTP requests that attacks need, each over a connection of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Answer {
    /// The text of a field, wherever it stands in the JSON.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.text.split_once(&format!("\"{name}\":\""))?;
        rest.split('"').next()
    }

    pub(super) fn cookies(&self) -> String {
        let lines = self.text.lines().take_while(|line| !line.is_empty());
        let set = lines.filter_map(|line| {
            line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"))
        });
        let pairs: Vec<&str> = set.filter_map(|(_, value)| value.split(';').next()).collect();
        pairs.join("; ")
    }
}

pub(super) fn get(to: SocketAddr, path: &str) -> Option<Answer> {
    request(to, &format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n"))
}

/// `headers` are lines that end with CRLF.
pub(super) fn send(to: SocketAddr, method: &str, path: &str, headers: &str, json: &str) -> Option<Answer> {
    request(
        to,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{headers}\r\n{json}",
            json.len()
        ),
    )
}

fn request(to: SocketAddr, text: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.write_all(text.as_bytes()).ok()?;
    let mut text = Vec::new();
    // An error is ignored: a server that closes early has answered completely.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, text })
}
