//! The server's metrics for Prometheus. None of them concerns a single text.

use crate::store::Counts;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the latency histogram's buckets, in milliseconds.
const BUCKETS: [u64; 9] = [1, 2, 5, 10, 25, 50, 100, 250, 1000];

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct Measured {
    new: AtomicU64,
    again: AtomicU64,
    predictions: AtomicU64,
    refused: AtomicU64,
    store_failures: AtomicU64,
    /// Contributions by latency: those within each bucket, and all.
    times: [AtomicU64; BUCKETS.len() + 1],
    microseconds: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Measured {
    /// Records a stored frame, with its numbers of new and known releases.
    pub fn contributed(&self, new: u64, again: u64, time: Duration) {
        add(&self.new, new);
        add(&self.again, again);
        add(&self.microseconds, time.as_micros() as u64);
        let milliseconds = time.as_secs_f64() * 1e3;
        for (bucket, most) in self.times.iter().zip(BUCKETS) {
            if milliseconds <= most as f64 {
                add(bucket, 1);
            }
        }
        add(&self.times[BUCKETS.len()], 1);
    }

    /// Counts answered queries.
    pub fn predicted(&self, count: u64) {
        add(&self.predictions, count);
    }

    /// Counts a refused request.
    pub fn refused(&self) {
        add(&self.refused, 1);
    }

    /// Counts a failure of the store.
    pub fn store_failed(&self) {
        add(&self.store_failures, 1);
    }

    /// The metrics in Prometheus' text format.
    pub fn text(&self, counts: &Counts, labels: &[String]) -> String {
        let mut out = String::new();
        let mut counter = |name: &str, help: &str, value: u64| {
            let _ = writeln!(out, "# HELP undertone_{name} {help}");
            let _ = writeln!(out, "# TYPE undertone_{name} counter\nundertone_{name} {value}");
        };
        let new = read(&self.new);
        counter("releases_new_total", "Releases that were stored.", new);
        let again = read(&self.again);
        counter("releases_known_total", "Releases that were sent again.", again);
        let predicted = read(&self.predictions);
        counter("predictions_total", "Queries that were answered.", predicted);
        counter("refused_total", "Requests that were refused.", read(&self.refused));
        let failures = read(&self.store_failures);
        counter("store_failures_total", "Times that the store did not answer.", failures);
        let name = "undertone_contribution_seconds";
        let _ = writeln!(out, "# HELP {name} Time of a frame from its header to its receipt.");
        let _ = writeln!(out, "# TYPE {name} histogram");
        let all = read(&self.times[BUCKETS.len()]);
        for (most, count) in BUCKETS.iter().zip(&self.times) {
            let most = *most as f64 / 1e3;
            let _ = writeln!(out, "{name}_bucket{{le=\"{most}\"}} {}", read(count));
        }
        let seconds = read(&self.microseconds) as f64 / 1e6;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {all}");
        let _ = writeln!(out, "{name}_sum {seconds}\n{name}_count {all}");
        let _ = writeln!(out, "# HELP undertone_owners Owners whose tokens are not revoked.");
        let _ = writeln!(out, "# TYPE undertone_owners gauge\nundertone_owners {}", counts.owners);
        let _ = writeln!(out, "# HELP undertone_releases Stored releases.");
        let _ = writeln!(out, "# TYPE undertone_releases gauge");
        for (epoch, label, count) in &counts.releases {
            let label = labels.get(*label as usize).map_or("?", String::as_str);
            let label = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
            let at = format!("epoch=\"{epoch}\",label=\"{label}\"");
            let _ = writeln!(out, "undertone_releases{{{at}}} {count}");
        }
        out
    }
}
