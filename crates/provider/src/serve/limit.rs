//! Rate limit of an owner: a token bucket.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Instant;

/// Maximum number of keys; the fullest buckets are dropped first.
const MOST_KEYS: usize = 100_000;

/// Buckets by key.
#[derive(Debug)]
pub struct RateLimit<K> {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<K, (f64, Instant)>>,
}

impl<K: Hash + Eq> RateLimit<K> {
    /// At most `per_second` requests per second on average, and `burst` at once.
    pub fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst, buckets: Mutex::default() }
    }

    /// Whether one more request is within the limit.
    pub fn allows(&self, key: K) -> bool {
        self.allows_at(key, Instant::now())
    }

    fn allows_at(&self, key: K, now: Instant) -> bool {
        let mut buckets = match self.buckets.lock() {
            Ok(buckets) => buckets,
            Err(poisoned) => poisoned.into_inner(),
        };
        if buckets.len() >= MOST_KEYS {
            // Full buckets carry no information.
            let (rate, burst) = (self.per_second, self.burst);
            let filled = |left: f64, at: Instant| {
                left + rate * now.saturating_duration_since(at).as_secs_f64() >= burst
            };
            buckets.retain(|_, (left, at)| !filled(*left, *at));
        }
        let (left, at) = buckets.entry(key).or_insert((self.burst, now));
        let since = now.saturating_duration_since(*at).as_secs_f64();
        *left = (*left + self.per_second * since).min(self.burst);
        *at = now;
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_is_allowed_and_then_a_rate() {
        let limit = RateLimit::new(2.0, 3.0);
        let start = Instant::now();
        let allowed = |seconds: f64| limit.allows_at("a", start + Duration::from_secs_f64(seconds));
        assert!(allowed(0.0) && allowed(0.0) && allowed(0.0) && !allowed(0.0));
        assert!(!allowed(0.4) && allowed(0.6) && !allowed(0.6));
        assert!(limit.allows_at("b", start));
    }
}
