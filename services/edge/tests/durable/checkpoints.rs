//! Progress of sessions that the store refuses: the session goes on, and a later checkpoint says the same.

use std::time::Duration;

use millrace_layers::Store;
use millrace_layers::qos2::{self, Direction};
use millrace_layers::sessions::SessionId;
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, PacketType, QoS};
use millrace_storage::{Read, block_on};

use crate::away::{Far, Mended, Way};
use crate::common::{Client, Server, ack};
use crate::steps::{lasting, say, take};
use crate::tools::eventually;

/// The server stores progress after two seconds.
const SAVED: Duration = Duration::from_secs(5);

#[test]
fn a_session_whose_checkpoint_is_refused_goes_on_and_stores_its_progress_later() {
    for (way, pod) in [(Way::Broken, None), (Way::Away, Some("pod"))] {
        let far = Far::new();
        let server = Server::on(&far.database(), |config| config.pod = pod.map(Into::into));
        let _mended = Mended(far.clone());
        let store = Store::new(far.near().clone());
        let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
        let id = SessionId { broker, client: b"ann" };
        let outbound = || {
            let list = store.run(async |tx| qos2::list(&tx, id, Direction::Outbound, Read::Snapshot).await);
            block_on(list).unwrap().len()
        };
        let mut ann = Client::open(&server, lasting(V5, "ann"));
        ann.subscribe("t", QoS::ExactlyOnce);
        say(&server, QoS::ExactlyOnce, "t", &["once"]);
        let message = take(&mut ann);
        let packet_id = message.packet_id.unwrap();
        ann.send(&Packet::PubRec(ack(packet_id)));
        ann.recv_ack(PacketType::PubRel, packet_id);
        assert_eq!(outbound(), 1);
        far.set(way);
        ann.send(&Packet::PubComp(ack(packet_id)));
        ann.expect_silence(SAVED);
        ann.ping();
        far.set(Way::Fine);
        eventually(|| outbound() == 0, || format!("{way:?}: the store still has the packet id"));
        ann.ping();
    }
}
