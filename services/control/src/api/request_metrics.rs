//! Counts and times the requests of the APIs, by the template of their route.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::time::Instant;

/// Upper bounds of the buckets, seconds. Most requests take less than 5 ms, so a quantile needs bounds below that.
const BOUNDS_S: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The route of a path that no route matches, and the method of a request that HTTP does not define.
const OTHER: &str = "_other";
/// The status of a request whose client closed the connection before the answer.
const CANCELLED: &str = "cancelled";
/// Values of the label `status`, in the order of [`Series::by_status`].
const STATUSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", CANCELLED];

/// Clients choose no label, so the number of series is bounded.
#[derive(Debug, Default)]
pub struct RequestMetrics(Mutex<BTreeMap<(Box<str>, &'static str), Series>>);

#[derive(Debug, Default)]
struct Series {
    by_status: [u64; STATUSES.len()],
    /// Requests up to each of [`BOUNDS_S`] and above the one before; then the rest.
    buckets: [u64; BOUNDS_S.len() + 1],
    sum: Duration,
}

impl RequestMetrics {
    pub fn around(self: &Arc<Self>, api: Router) -> Router {
        api.layer(from_fn_with_state(Arc::clone(self), count))
    }

    fn note(&self, route: &str, method: &'static str, status: Option<StatusCode>, took: Duration) {
        // HTTP allows statuses up to 999; clients treat those from 600 on as 5xx (RFC 9110, section 15).
        let class = status.map_or(STATUSES.len() - 1, |status| usize::from(status.as_u16() / 100 - 1).min(4));
        let bucket = BOUNDS_S.partition_point(|bound| *bound < took.as_secs_f64());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let series = all.entry((route.into(), method)).or_default();
        series.by_status[class] += 1;
        series.buckets[bucket] += 1;
        series.sum += took;
    }

    /// Appends Prometheus text. Before the first request there is nothing: a family without a series cannot be exported.
    pub fn write(&self, out: &mut String) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return;
        }
        out.push_str(
            "# HELP millrace_http_requests_total Requests of the APIs, by the template of their route, by method and class of status.\n\
             # TYPE millrace_http_requests_total counter\n",
        );
        for ((route, method), series) in all.iter() {
            for (status, count) in STATUSES.iter().zip(series.by_status).filter(|(_, count)| *count > 0) {
                let _ = writeln!(
                    out,
                    "millrace_http_requests_total{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}} {count}"
                );
            }
        }
        out.push_str(
            "# HELP millrace_http_request_seconds Time from the head of a request of the APIs to the head of its answer.\n\
             # TYPE millrace_http_request_seconds histogram\n",
        );
        for ((route, method), series) in all.iter() {
            let labels = format!("method=\"{method}\",route=\"{route}\"");
            let bounds = BOUNDS_S.iter().map(f64::to_string).chain(["+Inf".into()]);
            let mut count = 0;
            for (bound, in_bucket) in bounds.zip(series.buckets) {
                count += in_bucket;
                let _ =
                    writeln!(out, "millrace_http_request_seconds_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            let sum = series.sum.as_secs_f64();
            let _ = writeln!(
                out,
                "millrace_http_request_seconds_sum{{{labels}}} {sum}\nmillrace_http_request_seconds_count{{{labels}}} {count}"
            );
        }
    }
}

/// Dropped without a status if the client closes the connection before the answer.
struct RunningRequest {
    metrics: Arc<RequestMetrics>,
    route: Option<MatchedPath>,
    method: &'static str,
    began: Instant,
    status: Option<StatusCode>,
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let route = self.route.as_ref().map_or(OTHER, MatchedPath::as_str);
        self.metrics.note(route, self.method, self.status, self.began.elapsed());
    }
}

async fn count(State(metrics): State<Arc<RequestMetrics>>, request: Request, next: Next) -> Response {
    let (route, method) = (request.extensions().get().cloned(), method_of(request.method()));
    let mut running = RunningRequest { metrics, route, method, began: Instant::now(), status: None };
    let response = next.run(request).await;
    running.status = Some(response.status());
    response
}

fn method_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_the_class_of_its_status_and_in_the_buckets_from_its_time_on() {
        let metrics = RequestMetrics::default();
        let mut none = String::new();
        metrics.write(&mut none);
        assert_eq!(none, "");
        for (status, ms) in [(Some(StatusCode::OK), 1), (Some(StatusCode::NOT_FOUND), 6), (None, 31_000)] {
            metrics.note("/a/{b}", "GET", status, Duration::from_millis(ms));
        }
        let mut text = String::new();
        metrics.write(&mut text);
        for line in [
            "# TYPE millrace_http_requests_total counter",
            "millrace_http_requests_total{method=\"GET\",route=\"/a/{b}\",status=\"2xx\"} 1",
            "millrace_http_requests_total{method=\"GET\",route=\"/a/{b}\",status=\"4xx\"} 1",
            "millrace_http_requests_total{method=\"GET\",route=\"/a/{b}\",status=\"cancelled\"} 1",
            "# TYPE millrace_http_request_seconds histogram",
            "millrace_http_request_seconds_bucket{method=\"GET\",route=\"/a/{b}\",le=\"0.0005\"} 0",
            "millrace_http_request_seconds_bucket{method=\"GET\",route=\"/a/{b}\",le=\"0.001\"} 1",
            "millrace_http_request_seconds_bucket{method=\"GET\",route=\"/a/{b}\",le=\"0.005\"} 1",
            "millrace_http_request_seconds_bucket{method=\"GET\",route=\"/a/{b}\",le=\"0.01\"} 2",
            "millrace_http_request_seconds_bucket{method=\"GET\",route=\"/a/{b}\",le=\"30\"} 2",
            "millrace_http_request_seconds_bucket{method=\"GET\",route=\"/a/{b}\",le=\"+Inf\"} 3",
            "millrace_http_request_seconds_sum{method=\"GET\",route=\"/a/{b}\"} 31.007",
            "millrace_http_request_seconds_count{method=\"GET\",route=\"/a/{b}\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(!text.contains("5xx"), "{text}");
    }
}
