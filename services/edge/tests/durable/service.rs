//! A tenant's HTTP service that the edge calls: for authentication, key sets and webhooks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use crate::common::Server;
use millrace_storage::Database;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A service on a free port; its threads end with the process.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Service {
    /// `answer` returns the bytes of the whole response.
    pub(crate) fn start(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (answer, count) = (Arc::new(answer), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, answer, count) = (stream.unwrap(), answer.clone(), count.clone());
                std::thread::spawn(move || serve(&stream, &*answer, &count));
            }
        });
        Self { address, asked }
    }

    /// Answers no request until the returned sender is dropped, or once for each message that is sent.
    pub(crate) fn gated(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> (Self, SyncSender<()>) {
        let (open, gate): (_, Receiver<()>) = sync_channel(0);
        let gate = Mutex::new(gate);
        let service = Self::start(move |asked| {
            let _ = gate.lock().unwrap().recv();
            answer(asked)
        });
        (service, open)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The number of requests.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn serve(stream: &TcpStream, answer: &dyn Fn(&Asked) -> String, count: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        count.fetch_add(1, Ordering::SeqCst);
        let asked = Asked { head, body: String::from_utf8(body).unwrap() };
        let mut writer = stream;
        if writer.write_all(answer(&asked).as_bytes()).is_err() {
            return;
        }
    }
}

/// An answer with this status.
pub(crate) fn http(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn ok(body: &str) -> String {
    http("200 OK", body)
}

/// An edge that may call services on this machine.
pub(crate) fn edge(database: &Database) -> Server {
    Server::on(database, |config| config.outgoing.allow = vec!["127.0.0.0/8".parse().unwrap()])
}

/// Responses that no caller can use, each with the reason that the edge counts the failed call under.
pub(crate) fn useless() -> Vec<(String, &'static str)> {
    let secret = Service::start(|_| panic!("a private address was asked"));
    let redirect = format!("HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", secret.url());
    vec![
        (http("500 Internal Server Error", "{}"), "status"),
        (http("404 Not Found", ""), "status"),
        (redirect, "status"),
        (ok("<html>"), "body"),
        (ok(""), "body"),
        (ok("{}"), "body"),
        (ok(&" ".repeat(1024 * 1024)), "too_long"),
        ("220 mail ESMTP\r\n\r\n".into(), "http"),
        (String::new(), "timeout"),
    ]
}
