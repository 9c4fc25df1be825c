//! Several pods in one process (`--pods`), to try out a region without a cluster for its store.

use std::net::SocketAddr;

use millrace_edge::Config;
use millrace_edge::fabric::{self, PodId};

use crate::settings::{AdminListen, Settings};
use crate::store::numbered_pod;

/// The settings of one pod. Pods of one process share the store, and differ in name, ports and
/// network identity.
pub(crate) struct PodSettings {
    pub(crate) edge: Config,
    pub(crate) http_listen: Option<SocketAddr>,
    pub(crate) admin_listen: Option<AdminListen>,
}

/// The first pod has the settings unchanged; a single pod keeps its name.
pub(crate) fn all(settings: &Settings) -> Result<Vec<PodSettings>, String> {
    let first = PodSettings {
        edge: settings.edge.clone(),
        http_listen: settings.http_listen,
        admin_listen: settings.admin_listen,
    };
    let others = (1..settings.pods).map(|number| first.with_number(number));
    let others: Vec<_> = others.collect::<Option<_>>().ok_or_else(|| {
        format!(
            "a port is too high for {} pods, whose ports follow it: set a lower port, or fewer pods",
            settings.pods
        )
    })?;
    Ok([first].into_iter().chain(others).collect())
}

impl PodSettings {
    /// Another pod, with a name of its own and higher ports; `None` if there are no such ports.
    fn with_number(&self, number: u16) -> Option<Self> {
        let of_all = |all: &[SocketAddr]| all.iter().map(|at| counted_up(*at, number)).collect::<Option<_>>();
        let name = numbered_pod(number);
        let fabric = self.edge.fabric.clone();
        let fabric =
            fabric.map(|all| fabric::FabricSettings { pod: PodId::random(), pod_name: name.clone(), ..all });
        let edge = Config {
            mqtt_listen: of_all(&self.edge.mqtt_listen)?,
            ws_listen: of_all(&self.edge.ws_listen)?,
            mqtts_listen: of_all(&self.edge.mqtts_listen)?,
            wss_listen: of_all(&self.edge.wss_listen)?,
            gateway_listen: of_all(&self.edge.gateway_listen)?,
            pod: Some(name),
            fabric,
            ..self.edge.clone()
        };
        let http_listen = match self.http_listen {
            Some(at) => Some(counted_up(at, number)?),
            None => None,
        };
        let admin_listen = match self.admin_listen {
            Some(admin) => Some(AdminListen { at: counted_up(admin.at, number)?, ..admin }),
            None => None,
        };
        Some(Self { edge, http_listen, admin_listen })
    }
}

/// Port 0 stays 0: each pod gets a free one.
fn counted_up(at: SocketAddr, number: u16) -> Option<SocketAddr> {
    let port = if at.port() == 0 { 0 } else { at.port().checked_add(number)? };
    Some(SocketAddr::new(at.ip(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::load;

    fn of(flags: &[&str]) -> Result<Vec<PodSettings>, String> {
        let args = ["millrace", "serve"].iter().chain(flags).map(std::ffi::OsString::from).collect();
        let (settings, _) = load(args, std::iter::empty()).map_err(|failure| format!("{failure:?}"))?;
        all(&settings)
    }

    #[test]
    fn each_pod_has_its_own_name_ports_and_place_in_the_network() {
        let flags = ["--pods=3", "--ws-listen=127.0.0.1:0,[::1]:90", "--gateway-listen=127.0.0.1:1893"];
        let pods = of(&[&flags[..], &["--allow-anonymous", "--nats=nats://a:4222"]].concat()).unwrap();
        let seen: Vec<_> = pods
            .iter()
            .map(|pod| {
                let port = |all: &[SocketAddr]| all.iter().map(SocketAddr::port).collect::<Vec<_>>();
                let edge = &pod.edge;
                let ports = [port(&edge.mqtt_listen), port(&edge.ws_listen), port(&edge.gateway_listen)];
                (edge.pod.as_deref(), ports.concat(), pod.http_listen.map(|at| at.port()))
            })
            .collect();
        assert_eq!(
            seen,
            [
                (Some("pod-1"), vec![1883, 0, 90, 1893], Some(8080)),
                (Some("pod-2"), vec![1884, 0, 91, 1894], Some(8081)),
                (Some("pod-3"), vec![1885, 0, 92, 1895], Some(8082)),
            ]
        );
        let networks: Vec<_> = pods.iter().map(|pod| pod.edge.fabric.as_ref().unwrap()).collect();
        for (pod, network) in pods.iter().zip(&networks) {
            assert_eq!(Some(&network.pod_name), pod.edge.pod.as_ref());
            assert_eq!(networks.iter().filter(|other| other.pod == network.pod).count(), 1);
        }
    }

    #[test]
    fn one_pod_has_no_name_and_a_port_that_is_too_high_is_refused() {
        assert_eq!(of(&[]).unwrap().iter().map(|pod| pod.edge.pod.clone()).collect::<Vec<_>>(), [None]);
        let refused = of(&["--pods=3", "--http-listen=127.0.0.1:65534"]).map(drop).unwrap_err();
        assert!(refused.contains("a port is too high"), "{refused}");
    }
}
