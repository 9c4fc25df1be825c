//! `idle`: memory of a connection without traffic.

use std::io::ErrorKind;
use std::net::TcpStream;

use crate::broker::Broker;
use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::link::Hello;
use crate::measurement::Measurement;
use crate::procfs;
use crate::receipts::Faults;
use crate::report::{Better, Figure, Report};
use crate::scenario::SizedScenario;
use crate::settings::Settings;

pub(crate) fn run(case: SizedScenario, settings: &Settings, broker: &Broker) -> Outcome<Report> {
    check_descriptors(settings.connections)?;
    let meter = Measurement::start_with(broker, broker.settled_memory())?;
    let deadline_ns = clock::now_ns() + clock::seconds_ns(settings.seconds + settings.timeout);

    let mut connections = Vec::with_capacity(settings.connections as usize);
    let mut timed_out = false;
    for index in 0..settings.connections {
        connections.push(open(index, settings.subscribe, broker)?);
        if clock::now_ns() > deadline_ns {
            timed_out = true;
            break;
        }
    }
    let mut cost = meter.stop()?;
    cost.memory_after = broker.settled_memory();
    let opened = connections.len() as u64;
    let value = cost.rss_bytes_each(opened);
    let figure = Figure { name: "bytes_per_connection", unit: "bytes/conn", value, better: Better::Less };
    let faults = Faults { closed: closed(&connections), ..Faults::default() };
    Ok(Report { faults, timed_out, ..Report::new(case, broker, figure, opened, cost) })
}

fn open(index: u32, subscribe: bool, broker: &Broker) -> Outcome<TcpStream> {
    let run = std::process::id();
    let client_id = format!("i{run:x}-{index}");
    let filter = format!("load/{run:x}/{index}");
    let hello = Hello {
        client_id: &client_id,
        clean_session: true,
        subscription: subscribe.then_some((filter.as_str(), 0)),
    };
    hello.open(broker.address)
}

/// Each connection takes a descriptor of this process and one of the broker, which has the same
/// limit.
fn check_descriptors(connections: u32) -> Outcome<()> {
    let most = procfs::connections_max();
    if connections as usize > most {
        let what = format!("the limit of open files leaves room for {most} connections; see --connections");
        return Err(Failure::new(what));
    }
    Ok(())
}

fn closed(connections: &[TcpStream]) -> u64 {
    let is_open = |stream: &&TcpStream| {
        let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        matches!(looked, Err(e) if e.kind() == ErrorKind::WouldBlock)
    };
    (connections.len() - connections.iter().filter(is_open).count()) as u64
}
