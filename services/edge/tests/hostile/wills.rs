//! Wills, however a connection ends: once for each session that had one, and never when it was discarded (P7).

use std::collections::HashMap;
use std::time::Duration;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Property, QoS, ReasonCode, Will};
use socket2::SockRef;

use crate::common::{Client, Server, connect, disconnect, properties, will};
use crate::tools::{counted, eventually, half_close, metric};

/// The ways in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The client closes its side (FIN) without a DISCONNECT.
    Cut,
    /// A TCP reset, as from a host that has crashed and restarted.
    Reset,
    /// The client sends nothing until its keep alive has passed.
    KeepAlive,
    ProtocolError,
    Malformed,
    DisconnectWithWill,
    Disconnect,
    /// Another connection continues with the session.
    Resumed,
    /// Another connection begins anew.
    CleanStart,
}

const ENDS: [End; 9] = [
    End::Cut,
    End::Reset,
    End::KeepAlive,
    End::ProtocolError,
    End::Malformed,
    End::DisconnectWithWill,
    End::Disconnect,
    End::Resumed,
    End::CleanStart,
];

/// Will delay and session expiry, seconds.
const TIMES: [(u32, u32); 6] = [(0, 0), (0, 60), (1, 60), (1, 0), (60, 1), (60, 60)];

/// Whether the will is published within some seconds.
fn is_published(end: End, delay_s: u32, expiry_s: u32) -> bool {
    match end {
        End::Disconnect => false,
        // A clean start ends the session, so its will is due; a resumed session stops a will with a delay.
        End::CleanStart => true,
        End::Resumed => delay_s.min(expiry_s) == 0,
        _ => delay_s.min(expiry_s) <= 1,
    }
}

fn bring_about(server: &Server, end: End, id: &str, client: Client) -> Vec<Client> {
    let without = |clean_start| {
        let expiry = properties(&[Property::SessionExpiryInterval(60)]);
        Client::open(server, Connect { clean_start, properties: expiry, ..connect(V5, id) })
    };
    match end {
        End::Cut => {
            half_close(client.stream());
        }
        End::Reset => SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap(),
        End::KeepAlive => return vec![client],
        End::ProtocolError => crate::tools::send_anyway(client.stream(), &[0xD0, 0]),
        End::Malformed => crate::tools::send_anyway(client.stream(), &[0, 0]),
        End::DisconnectWithWill => client.disconnect_with(disconnect(ReasonCode::DISCONNECT_WITH_WILL)),
        End::Disconnect => client.disconnect(),
        // The new connection stays open.
        End::Resumed => return vec![without(false), client],
        End::CleanStart => return vec![without(true), client],
    }
    Vec::new()
}

#[test]
fn a_will_is_published_once_however_its_connection_ends() {
    //= [MQTT-3.1.2-8] [MQTT-3.1.2-10] [MQTT-3.1.3-9] v5
    for threads in [1, 2] {
        let server = Server::with(|config| config.threads = threads);
        let mut watcher = Client::connect(&server, V5, "watcher");
        watcher.subscribe("will/#", QoS::AtMostOnce);
        let (mut kept, mut expected) = (Vec::new(), HashMap::new());
        for end in ENDS {
            for (delay_s, expiry_s) in TIMES {
                let topic = format!("will/{end:?}/{delay_s}/{expiry_s}");
                let delay = properties(&[Property::WillDelayInterval(delay_s)]);
                let connect = Connect {
                    clean_start: false,
                    keep_alive_s: u16::from(end == End::KeepAlive),
                    properties: properties(&[Property::SessionExpiryInterval(expiry_s)]),
                    will: Some(Will { properties: delay, ..will(&topic, b"gone") }),
                    ..connect(V5, &topic)
                };
                let client = Client::open(&server, connect);
                kept.append(&mut bring_about(&server, end, &topic, client));
                if is_published(end, delay_s, expiry_s) {
                    expected.insert(topic, 0);
                }
            }
        }
        let count = expected.len() as u64;
        let published = || metric(&server, "millrace_wills_published_total", "");
        eventually(|| published() >= count, || format!("{} of {count}\n{}", published(), counted(&server)));
        for _ in 0..count {
            let topic = watcher.recv_publish().topic;
            let times = expected.get_mut(topic).unwrap_or_else(|| panic!("{topic} was discarded"));
            *times += 1;
        }
        assert!(expected.values().all(|times| *times == 1), "{expected:?}");
        // The sessions that ended with or after their wills leave no second one.
        watcher.expect_silence(Duration::from_millis(2500));
        assert_eq!(published(), count);
    }
}

#[test]
fn clients_that_are_all_cut_at_once_leave_each_its_will() {
    const CLIENTS: u64 = 300;
    let server = Server::with(|config| config.threads = 2);
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("will/+", QoS::AtLeastOnce);
    let all: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let topic = format!("will/{number}");
            let will = Will { qos: QoS::AtLeastOnce, retain: true, ..will(&topic, b"gone") };
            Client::open(&server, Connect { will: Some(will), ..connect(V311, &format!("client-{number}")) })
        })
        .collect();
    drop(all);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..CLIENTS {
        let message = watcher.recv_publish();
        watcher.send(&millrace_mqtt::Packet::PubAck(crate::common::ack(message.packet_id.unwrap())));
        assert!(seen.insert(message.topic));
    }
    watcher.expect_nothing();
    // The wills are retained messages, too.
    let mut later = Client::connect(&server, V5, "later");
    later.subscribe("will/+", QoS::AtMostOnce);
    (0..CLIENTS).for_each(|_| assert!(later.recv_publish().retain));
}
