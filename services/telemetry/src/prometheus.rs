//! Converts metrics in Prometheus text to OTLP, by the rules of the collector's own Prometheus
//! receiver: names stay, and counters become cumulative monotonic sums. One text is the source of
//! both forms, so a pushed metric equals a scraped one.
//!
//! The text is the server's own: HELP and TYPE precede the samples of a name, and the buckets of a
//! histogram stand together for each set of labels, the smallest bound first. Other lines are
//! skipped without an error.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

use crate::items::FieldValue;
use crate::request;

/// The interval of a data point, nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    pub(crate) start_ns: u64,
    pub(crate) now_ns: u64,
}

pub(crate) fn metrics(text: &str, period: Period) -> Vec<Metric> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(word), Some(name)) = (words.next(), words.next()) else { continue };
            let rest = words.next().unwrap_or_default();
            if families.last().is_none_or(|last| last.name != name) {
                families.push(Family { name, ..Family::default() });
            }
            match (word, families.last_mut()) {
                ("HELP", Some(family)) => family.help = rest,
                ("TYPE", Some(family)) => family.kind = rest,
                _ => {}
            }
        } else if let (Some(sample), Some(family)) = (Sample::parse(line), families.last_mut())
            && family.has(sample.name)
        {
            family.samples.push(sample);
        }
    }
    families.into_iter().filter_map(|family| family.into_metric(period)).collect()
}

pub(crate) fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        _ => 0,
    }
}

#[derive(Default)]
struct Family<'t> {
    name: &'t str,
    kind: &'t str,
    help: &'t str,
    samples: Vec<Sample<'t>>,
}

struct Sample<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: f64,
}

impl<'t> Family<'t> {
    fn has(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name);
        rest == Some("") || self.kind == "histogram" && matches!(rest, Some("_bucket" | "_sum" | "_count"))
    }

    fn into_metric(self, period: Period) -> Option<Metric> {
        if self.samples.is_empty() {
            return None;
        }
        let (name, help) = (self.name, self.help);
        let cumulative = AggregationTemporality::Cumulative as i32;
        let data = match self.kind {
            "counter" => Data::Sum(Sum {
                data_points: numbers(self.samples, period, period.start_ns),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            "histogram" => Data::Histogram(Histogram {
                data_points: self.histograms(period),
                aggregation_temporality: cumulative,
            }),
            _ => Data::Gauge(Gauge { data_points: numbers(self.samples, period, 0) }),
        };
        Some(Metric {
            name: name.to_owned(),
            description: help.to_owned(),
            unit: unit(name).to_owned(),
            metadata: Vec::new(),
            data: Some(data),
        })
    }

    /// One data point for each set of labels, without `le`.
    fn histograms(self, period: Period) -> Vec<HistogramDataPoint> {
        let mut points: Vec<HistogramDataPoint> = Vec::new();
        for mut sample in self.samples {
            let at = sample.labels.iter().position(|(label, _)| *label == "le");
            let bound = at.map(|at| sample.labels.remove(at).1);
            let attributes = attributes(sample.labels);
            if points.last().is_none_or(|last| last.attributes != attributes) {
                points.push(HistogramDataPoint {
                    attributes,
                    start_time_unix_nano: period.start_ns,
                    time_unix_nano: period.now_ns,
                    ..HistogramDataPoint::default()
                });
            }
            let Some(point) = points.last_mut() else { continue };
            if sample.name.ends_with("_sum") {
                point.sum = Some(sample.value);
            } else if sample.name.ends_with("_count") {
                point.count = whole(sample.value);
            } else if let Some(bound) = bound {
                // A Prometheus bucket includes all smaller ones, an OTLP bucket does not.
                let below: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push(whole(sample.value).saturating_sub(below));
                point.explicit_bounds.extend(bound.parse::<f64>().ok().filter(|bound| bound.is_finite()));
            }
        }
        points
    }
}

impl<'t> Sample<'t> {
    /// `name{label="value",...} number`; `None` for anything else.
    fn parse(line: &'t str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let value = match rest.trim() {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            text => text.parse().ok()?,
        };
        Some(Self { name, labels, value })
    }
}

type Labels<'t> = Vec<(&'t str, String)>;

/// Returns the labels up to the closing brace, and the rest of the line.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.trim_start_matches(',').split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name, value));
        rest = &after[end..];
    }
}

fn numbers(samples: Vec<Sample<'_>>, period: Period, start_time_unix_nano: u64) -> Vec<NumberDataPoint> {
    let point = |sample: Sample<'_>| NumberDataPoint {
        attributes: attributes(sample.labels),
        start_time_unix_nano,
        time_unix_nano: period.now_ns,
        exemplars: Vec::new(),
        flags: 0,
        value: Some(Number::AsDouble(sample.value)),
    };
    samples.into_iter().map(point).collect()
}

fn attributes(labels: Labels<'_>) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| request::attribute(name, FieldValue::Text(value))).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// The UCUM unit for the suffix of a Prometheus name.
fn unit(name: &str) -> &'static str {
    match name.strip_suffix("_total").unwrap_or(name).rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Period = Period { start_ns: 1, now_ns: 2 };

    #[test]
    fn counters_are_cumulative_sums_with_their_labels() {
        let text = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_bytes_total{broker=\"x \\\"y\\\\\",qos=\"1\"} 3\n\
                    a_bytes_total{broker=\"z\",qos=\"0\"} 4.5\n";
        let found = metrics(text, PERIOD);
        let [metric] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&*metric.name, &*metric.description, &*metric.unit), ("a_bytes_total", "Bytes.", "By"));
        let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let first = &sum.data_points[0];
        assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (1, 2));
        assert_eq!(first.attributes[0], request::attribute("broker", FieldValue::Text("x \"y\\".into())));
        assert_eq!(sum.data_points[1].value, Some(Number::AsDouble(4.5)));
    }

    #[test]
    fn buckets_of_a_histogram_count_apart() {
        let text = "# HELP t_seconds T.\n# TYPE t_seconds histogram\nt_seconds_bucket{le=\"0.5\"} 2\nt_seconds_bucket{le=\"1\"} 5\n\
                    t_seconds_bucket{le=\"+Inf\"} 6\nt_seconds_sum 7.5\nt_seconds_count 6\n";
        let found = metrics(text, PERIOD);
        let Some(Data::Histogram(histogram)) = &found[0].data else { panic!("{found:?}") };
        let [point] = &histogram.data_points[..] else { panic!("{histogram:?}") };
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[2, 3, 1][..], &[0.5, 1.0][..]));
        assert_eq!((point.count, point.sum, &*found[0].unit), (6, Some(7.5), "s"));
    }

    #[test]
    fn gauges_have_no_start_and_lines_that_are_none_are_left_out() {
        let text = "nonsense\n# TYPE g gauge\ng 1\nother 2\ng{a=\"unclosed 3\n# TYPE empty gauge\n";
        let found = metrics(text, PERIOD);
        let [metric] = &found[..] else { panic!("{found:?}") };
        let Some(Data::Gauge(gauge)) = &metric.data else { panic!("{metric:?}") };
        assert_eq!((gauge.data_points.len(), gauge.data_points[0].start_time_unix_nano), (1, 0));
    }
}
