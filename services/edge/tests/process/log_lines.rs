//! Log lines of connections, and counters by protocol version.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use millrace_mqtt::Connect;
use millrace_mqtt::Version::{V5, V311};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{Client, Server, connect, publish};
use crate::tools::{eventually, metric};

/// Collects the lines as `field=value` with the values as log files have them.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millrace::connections"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    /// The only line of a client with this message.
    fn of(&self, client: &str, message: &str) -> String {
        let (client, message) = (format!(" client_id={client} "), format!("message={message} "));
        let found = || {
            let lines = self.0.lock().unwrap();
            let mine = lines.iter().filter(|line| line.contains(&client) && line.contains(&message));
            mine.cloned().collect::<Vec<_>>()
        };
        eventually(|| found().len() == 1, || format!("{message}{client}in {:?}", self.0.lock().unwrap()));
        found().remove(0)
    }
}

#[test]
fn a_connection_has_a_line_at_its_begin_and_at_its_end_with_its_client_and_the_reason() {
    let _alone = crate::alone();
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let server = Server::with(|_| ());

    let polite = Client::connect(&server, V5, "polite");
    let line = lines.of("polite", "client connected");
    assert!(line.contains("broker=default ") && line.contains(" protocol=5.0 "), "{line}");
    assert!(line.contains(" address=127.0.0.1:"), "{line}");
    assert!(!line.contains("user=") && !line.contains("server_name="), "an absent field is left out: {line}");
    polite.disconnect();
    let line = lines.of("polite", "client disconnected");
    assert!(line.contains(" reason=client ") && line.contains(" duration_s="), "{line}");
    assert!(!line.contains("reason_code="), "{line}");

    let named = Connect { user_name: Some("ann"), ..connect(V311, "named") };
    let _first = Client::open(&server, named.clone());
    let line = lines.of("named", "client connected");
    assert!(line.contains(" user=ann ") && line.contains(" protocol=3.1.1 "), "{line}");
    let _second = Client::open(&server, named);
    let line = lines.of("named", "client disconnected");
    assert!(line.contains(" reason=taken_over ") && line.contains(" user=ann "), "{line}");
}

#[test]
fn clients_and_messages_are_counted_by_protocol_version() {
    let _alone = crate::alone();
    let server = Server::with(|_| ());
    let counts = |name: &str| {
        ["3.1", "3.1.1", "5.0"].map(|version| metric(&server, name, &format!("{{version=\"{version}\"}}")))
    };
    for (version, messages) in [(V5, 3), (V311, 2)] {
        let mut client = Client::connect(&server, version, "one");
        for _ in 0..messages {
            client.publish(publish("a", b"x"));
        }
        client.disconnect();
    }
    let _open = Client::connect(&server, V5, "open");
    let connected = || counts("millrace_protocol_clients_connected");
    eventually(|| connected() == [0, 0, 1], || format!("connected: {:?}", connected()));
    assert_eq!(counts("millrace_protocol_connects_total"), [0, 1, 2]);
    assert_eq!(counts("millrace_protocol_messages_received_total"), [0, 2, 3]);
}
