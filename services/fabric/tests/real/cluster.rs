//! Three servers.

use millrace_fabric::{FabricSettings, Sent, To};

use crate::support::{Pod, Server, know_each_other, needs_nats, poll};

const BROKER: To = To::Broker(7);
const GROUP: To = To::Group { broker: 7, group: 1 };

fn cluster() -> [Server; 3] {
    let first = Server::start_in_cluster("a", None);
    let [second, third] = ["b", "c"].map(|name| Server::start_in_cluster(name, Some(&first)));
    [first, second, third]
}

/// A pod that may use all servers, and is on `server`.
fn pod_on(servers: &[Server], server: usize) -> Pod {
    let only = |settings: &mut FabricSettings| {
        settings.servers = servers.iter().map(Server::url).collect();
    };
    loop {
        let pod = Pod::start_with("nats://127.0.0.1", only);
        pod.until("to connect", |seen| seen.health.last().is_some_and(|health| health.connected));
        if pod.fabric.health().server.is_some_and(|shown| shown.ends_with(&servers[server].port.to_string()))
        {
            return pod;
        }
    }
}

/// One pod on each server. They know each other, so the routes are there.
fn pods(servers: &[Server; 3]) -> [Pod; 3] {
    let pods = [0, 1, 2].map(|server| pod_on(servers, server));
    know_each_other(&pods.each_ref());
    pods
}

#[test]
fn pods_on_different_servers_exchange_messages() {
    needs_nats!();
    let servers = cluster();
    let pods = pods(&servers);
    pods.iter().for_each(|pod| pod.join(BROKER));
    pods.iter().for_each(|pod| pod.send_all(BROKER, 0..2000, 100));
    for receiver in &pods {
        for sender in pods.iter().filter(|sender| sender.id != receiver.id) {
            sender.until_accounted(receiver, BROKER, 2000);
        }
        receiver.seen(|seen| assert_eq!(seen.gaps, []));
    }
}

#[test]
fn when_a_server_dies_its_pods_move_and_every_loss_shows() {
    needs_nats!();
    let mut servers = cluster();
    let pods = pods(&servers);
    pods.iter().for_each(|pod| pod.join(BROKER));
    const MESSAGES: u64 = 60_000;
    std::thread::scope(|scope| {
        for pod in &pods {
            scope.spawn(|| (0..MESSAGES).for_each(|number| _ = pod.send(BROKER, number, 200)));
        }
        pods[1].until("the flood", |seen| seen.accounted(pods[0].id, BROKER) > 5000);
        servers[0].kill();
    });
    for receiver in &pods {
        for sender in pods.iter().filter(|sender| sender.id != receiver.id) {
            sender.until_accounted(receiver, BROKER, MESSAGES);
        }
        receiver.seen(|seen| assert!(seen.gaps.iter().all(|gap| gap.missing.is_some()), "{:?}", seen.gaps));
    }
    let reconnects = pods.each_ref().map(|pod| pod.fabric.health().reconnects);
    assert_eq!(reconnects, [1, 0, 0]);
    assert!(pods.iter().all(|pod| pod.fabric.health().connected));
}

#[test]
fn one_of_a_group_gets_each_message_wherever_it_is() {
    needs_nats!();
    let servers = cluster();
    let pods = pods(&servers);
    pods.iter().for_each(|pod| pod.join(GROUP));
    // The sender is a member on its own server: what its server might give to it must go to
    // another.
    for number in 0..3000 {
        assert_eq!(pods[0].send(GROUP, number, 2000), Sent::Queued);
    }
    let [_, a, b] = &pods;
    let count = |pod: &Pod| pod.seen(|seen| seen.count(pods[0].id, GROUP));
    poll("all messages", || count(a) + count(b) == 3000);
    assert!(count(a) > 0 && count(b) > 0, "one of them got nothing");
    assert_eq!(count(&pods[0]), 0);
}

#[test]
fn pods_leave_a_server_that_asks_them_to() {
    needs_nats!();
    let servers = cluster();
    let pods = pods(&servers);
    pods.iter().for_each(|pod| pod.join(BROKER));
    let mut number = 0;
    servers[0].lame_duck();
    while pods[0].fabric.health().reconnects == 0 {
        let _ = pods[0].send(BROKER, number, 100);
        number += 1;
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    let _ = pods[0].send(BROKER, number, 100);
    number += 1;
    pods[0].until_accounted(&pods[1], BROKER, number);
    // It went by itself, and took along what it had to send.
    pods[1].seen(|seen| assert_eq!(seen.gaps, []));
}
