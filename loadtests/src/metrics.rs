//! Reads a broker's own counters from /metrics, in Prometheus' text format.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::broker::Broker;
use crate::failure::{Failure, Outcome, While};

const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) type Counters = Vec<(Cow<'static, str>, f64)>;

/// All counters with `part` in their name; empty for a broker without /metrics.
pub(crate) fn read(broker: &Broker, part: &str) -> Outcome<Counters> {
    let Some(address) = broker.http else { return Ok(Vec::new()) };
    let get = || {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    let answer = get().during("reading /metrics")?;
    if !answer.starts_with("HTTP/1.1 200 ") {
        let status = answer.lines().next().unwrap_or_default();
        return Err(Failure::new(format!("/metrics answered {status}")));
    }
    Ok(parse(&answer, part))
}

pub(crate) fn growth(before: &Counters, after: &Counters) -> Counters {
    let old = |name: &str| before.iter().find(|(n, _)| n == name).map_or(0.0, |(_, value)| *value);
    let grown = after.iter().map(|(name, value)| (name.clone(), value - old(name)));
    grown.filter(|(_, by)| *by > 0.0).collect()
}

/// Reads only names that end in `_total`, because only these never fall.
fn parse(text: &str, part: &str) -> Counters {
    let counter = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        let wanted = name.ends_with("_total") && name.contains(part);
        Some((wanted.then(|| Cow::Owned(series.to_owned()))?, value.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_growing_counters_of_the_name_are_reported() {
        let before =
            "# TYPE a_store_writes_total counter\na_store_writes_total 5\na_store_bytes 7\nb_total 3\n";
        let after =
            "a_store_writes_total 8\na_store_reads_total{of=\"x y\"} 2\na_store_idle_total 0\nb_total 9\n";
        let grown = growth(&parse(before, "store"), &parse(after, "store"));
        let expected = [("a_store_writes_total", 3.0), ("a_store_reads_total{of=\"x y\"}", 2.0)];
        assert_eq!(grown, expected.map(|(name, by)| (Cow::from(name), by)));
    }
}
