//! Chooses the busiest brokers, which have metrics of their own. So the number of series is bounded, however many brokers are
//! open. Sums over the label `broker` stay right, because all other brokers are one series, [`OTHER`].

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::{BrokerCounters, Metric};
use crate::clock::Millis;

/// The label of all other brokers. No broker can have this name.
const OTHER: &str = "_other";
/// How long a choice holds, so that several scrapers see the same brokers.
const CHOOSE_EVERY_MS: Millis = 10_000;
/// Metrics whose growth measures a broker's activity.
const LOUD: [&str; 6] = [
    "millrace_connects_total",
    "millrace_connects_refused_total",
    "millrace_messages_received_total",
    "millrace_messages_sent_total",
    // Alerts about losses leave the worst broker out.
    "millrace_messages_dropped_total",
    "millrace_messages_missed_total",
];

/// A broker and its values, in the order of [`BrokerCounters::METRICS`] and the gauges after them.
pub(crate) struct LoudRow<'b> {
    pub(crate) id: u64,
    pub(crate) name: &'b str,
    pub(crate) values: Vec<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct LoudestBrokers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    chosen_at: Option<Millis>,
    activity: HashMap<u64, u64>,
    chosen: HashMap<u64, Chosen>,
    /// Counts of formerly chosen brokers while they were chosen.
    shown_before: Vec<u64>,
    /// The others were shown, so counts of a broker before it is chosen are theirs.
    has_others: bool,
}

#[derive(Debug)]
struct Chosen {
    /// Its values when it was chosen: earlier counts stay with the others.
    since: Vec<u64>,
    last: Vec<u64>,
}

impl Chosen {
    /// Counters begin at zero with each choice. Prometheus takes that for a restart, and `increase` counts the growth since the
    /// last choice, which is among the others, no second time.
    fn growth(&self, metrics: &[Metric], row: &LoudRow<'_>) -> Vec<u64> {
        let is_gauge = metrics.iter().map(|metric| metric.kind == "gauge");
        let values = is_gauge.zip(&row.values).zip(&self.since);
        values
            .map(|((is_gauge, now), since)| if is_gauge { *now } else { now.wrapping_sub(*since) })
            .collect()
    }
}

impl LoudestBrokers {
    /// A counter of the others never falls: it includes the growth of brokers while they are not
    /// chosen, and `closed`, the counts of brokers that are not open any more, in the order of `metrics`.
    pub(crate) fn rows(
        &self,
        now: Millis,
        max: usize,
        metrics: &[Metric],
        brokers: &[LoudRow<'_>],
        closed: &[u64],
    ) -> Vec<(String, Vec<u64>)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.shown_before.resize(metrics.len(), 0);
        state.has_others |= !closed.is_empty();
        state.forget_closed(metrics, brokers);
        if state.chosen_at.is_none_or(|at| now >= at + CHOOSE_EVERY_MS) || brokers.len() <= max {
            state.choose(now, max, brokers);
        }
        let label = |name: &str| format!("broker=\"{name}\"");
        let chosen =
            |row: &LoudRow<'_>| Some((label(row.name), state.chosen.get(&row.id)?.growth(metrics, row)));
        let mut rows: Vec<_> = brokers.iter().filter_map(chosen).collect();
        if brokers.len() > rows.len() || state.has_others {
            state.has_others = true;
            rows.push((label(OTHER), state.others(metrics, brokers, closed)));
        }
        for row in brokers {
            if let Some(chosen) = state.chosen.get_mut(&row.id) {
                chosen.last.clone_from(&row.values);
            }
        }
        rows
    }
}

impl State {
    /// Brokers that were closed since the last call, also those that were opened again and count from zero.
    fn forget_closed(&mut self, metrics: &[Metric], brokers: &[LoudRow<'_>]) {
        let open: HashMap<u64, &LoudRow<'_>> = brokers.iter().map(|row| (row.id, row)).collect();
        self.activity.retain(|id, _| open.contains_key(id));
        let is_counted_on = |row: &LoudRow<'_>, last: &[u64]| {
            let counters = metrics.iter().zip(&row.values).zip(last);
            counters.into_iter().all(|((metric, now), last)| metric.kind == "gauge" || now >= last)
        };
        let goes_on =
            |id: &u64, of: &mut Chosen| open.get(id).is_some_and(|row| is_counted_on(row, &of.last));
        for (_, Chosen { since, last }) in self.chosen.extract_if(|id, of| !goes_on(id, of)) {
            add_growth(&mut self.shown_before, &last, &since);
        }
    }

    fn choose(&mut self, now: Millis, max: usize, brokers: &[LoudRow<'_>]) {
        self.chosen_at = Some(now);
        let mut loudest: Vec<_> = brokers
            .iter()
            .map(|row| {
                let activity = activity(&row.values);
                let before = self.activity.insert(row.id, activity).unwrap_or(0);
                (activity.wrapping_sub(before), self.chosen.contains_key(&row.id), row)
            })
            .collect();
        // Among equals, the brokers shown before stay.
        loudest.sort_by_key(|(growth, is_chosen, row)| (std::cmp::Reverse((*growth, *is_chosen)), row.id));
        loudest.truncate(max);
        let chosen: HashSet<u64> = loudest.iter().map(|(_, _, row)| row.id).collect();
        for row in brokers.iter().filter(|row| !chosen.contains(&row.id)) {
            if let Some(chosen) = self.chosen.remove(&row.id) {
                add_growth(&mut self.shown_before, &row.values, &chosen.since);
            }
        }
        for (_, _, row) in loudest {
            let since = || if self.has_others { row.values.clone() } else { vec![0; row.values.len()] };
            let chosen = || Chosen { since: since(), last: row.values.clone() };
            self.chosen.entry(row.id).or_insert_with(chosen);
        }
    }

    fn others(&self, metrics: &[Metric], brokers: &[LoudRow<'_>], closed: &[u64]) -> Vec<u64> {
        let mut all = closed.to_vec();
        all.resize(metrics.len(), 0);
        let mut shown = self.shown_before.clone();
        let mut now = vec![0u64; metrics.len()];
        for row in brokers {
            all.iter_mut().zip(&row.values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
            if let Some(chosen) = self.chosen.get(&row.id) {
                add_growth(&mut shown, &row.values, &chosen.since);
                now.iter_mut().zip(&row.values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
            }
        }
        let is_gauge = metrics.iter().map(|metric| metric.kind == "gauge");
        let of_others = is_gauge.zip(all).zip(shown.iter().zip(now));
        of_others
            .map(|((is_gauge, all), (shown, now))| all.wrapping_sub(if is_gauge { now } else { *shown }))
            .collect()
    }
}

fn add_growth(sums: &mut [u64], values: &[u64], since: &[u64]) {
    for ((sum, value), since) in sums.iter_mut().zip(values).zip(since) {
        *sum = sum.wrapping_add(value.wrapping_sub(*since));
    }
}

fn activity(values: &[u64]) -> u64 {
    let metrics = BrokerCounters::METRICS.iter().zip(values);
    metrics.filter(|(metric, _)| LOUD.contains(&metric.name)).map(|(_, value)| *value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: [Metric; 2] = [
        Metric { kind: "counter", name: "millrace_connects_total", labels: "", help: "" },
        Metric { kind: "gauge", name: "millrace_clients_connected", labels: "", help: "" },
    ];

    /// The counter of each broker in rising order of ids, shown by name; gauges are 1.
    fn shown(loudest: &LoudestBrokers, now: Millis, max: usize, counts: &[u64]) -> Vec<(String, u64, u64)> {
        let names: Vec<_> = (0..counts.len()).map(|id| format!("b{id}")).collect();
        let rows: Vec<_> = counts
            .iter()
            .zip(&names)
            .enumerate()
            .map(|(id, (count, name))| LoudRow { id: id as u64, name, values: vec![*count, 1] })
            .collect();
        let shown = loudest.rows(now, max, &METRICS, &rows, &[]);
        let short = |label: String| label.replace("broker=", "").replace('"', "");
        shown.into_iter().map(|(label, values)| (short(label), values[0], values[1])).collect()
    }

    #[test]
    fn a_broker_whose_passwords_are_guessed_is_loud_although_no_client_connects() {
        let refused = |metric: &Metric| metric.labels.contains("credentials");
        let values: Vec<u64> =
            BrokerCounters::METRICS.iter().map(|metric| u64::from(refused(metric)) * 7).collect();
        assert_eq!(activity(&values), 7);
    }

    type Expected<'n> = (&'n str, u64, u64);

    fn expected(rows: &[Expected<'_>]) -> Vec<(String, u64, u64)> {
        rows.iter().map(|(name, count, gauge)| ((*name).to_owned(), *count, *gauge)).collect()
    }

    #[test]
    fn few_brokers_have_all_their_own_metrics() {
        let loudest = LoudestBrokers::default();
        assert_eq!(shown(&loudest, 0, 2, &[5, 7]), expected(&[("b0", 5, 1), ("b1", 7, 1)]));
        assert_eq!(shown(&loudest, 1, 2, &[6, 7]), expected(&[("b0", 6, 1), ("b1", 7, 1)]));
    }

    #[test]
    fn of_many_brokers_the_loudest_are_shown_and_the_rest_is_a_sum_that_never_falls() {
        let loudest = LoudestBrokers::default();
        let steps: [(Millis, [u64; 3], [Expected<'_>; 2]); 5] = [
            (0, [5, 7, 1], [("b1", 7, 1), ("_other", 6, 2)]),
            // A choice holds for a while.
            (9_999, [90, 8, 1], [("b1", 8, 1), ("_other", 91, 2)]),
            // b0 is chosen: its earlier counts stay with the others, and so do the later counts of b1.
            (10_000, [95, 9, 1], [("b0", 0, 1), ("_other", 96, 2)]),
            (10_001, [99, 20, 2], [("b0", 4, 1), ("_other", 108, 2)]),
            (20_000, [99, 30, 2], [("b1", 0, 1), ("_other", 118, 2)]),
        ];
        for (now, counts, rows) in steps {
            assert_eq!(shown(&loudest, now, 1, &counts), expected(&rows), "at {now} ms");
        }
    }

    #[test]
    fn what_prometheus_adds_up_is_what_the_brokers_counted() {
        let loudest = LoudestBrokers::default();
        let mut series: HashMap<String, (u64, u64)> = HashMap::new();
        let mut counts = [5, 5, 5];
        for step in 0..12 {
            counts[step % 3] += 1_000;
            for (name, value, _) in shown(&loudest, 10_000 * step as Millis, 1, &counts) {
                let (last, increase) = series.entry(name).or_insert((value, 0));
                *increase += if value < *last { value } else { value - *last };
                *last = value;
            }
        }
        let increase: u64 = series.values().map(|(_, increase)| increase).sum();
        // A range begins with the first sample of each series.
        let first = 1_000 + 15;
        assert_eq!(increase, counts.iter().sum::<u64>() - first);
    }

    #[test]
    fn a_closed_broker_has_no_series_and_no_sum_falls() {
        let loudest = LoudestBrokers::default();
        let rows = |now, open: &[(u64, u64)], closed: &[u64]| -> Vec<(String, u64)> {
            let rows: Vec<_> = open
                .iter()
                .map(|(id, count)| LoudRow { id: *id, name: "b", values: vec![*count, 1] })
                .collect();
            let shown = loudest.rows(now, 2, &METRICS, &rows, closed);
            shown.into_iter().map(|(label, values)| (label, values[0])).collect()
        };
        let (own, others) = ("broker=\"b\"".to_owned(), format!("broker=\"{OTHER}\""));
        assert_eq!(rows(0, &[(1, 5), (2, 7)], &[]), [(own.clone(), 5), (own.clone(), 7)]);
        // The second one was shown by its name.
        assert_eq!(rows(1, &[(1, 6)], &[7, 0]), [(own.clone(), 6), (others.clone(), 0)]);
        // Opened again it counts from zero. Counts from before it is chosen are among the others.
        assert_eq!(
            rows(2, &[(1, 6), (2, 3)], &[7, 0]),
            [(own.clone(), 6), (own.clone(), 0), (others.clone(), 3)]
        );
        // Closed and opened between two calls.
        assert_eq!(rows(3, &[(1, 6), (2, 1)], &[17, 0]), [(own.clone(), 6), (own, 0), (others, 11)]);
    }
}
