//! How long to wait before dialling a peer again: exponential, capped, jittered.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Wait after the first failure. Short: the usual cause is a router whose BGP daemon is restarting.
const BASE: Duration = Duration::from_millis(250);

/// Failures in a row of one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// None yet; no wait will be above `longest`.
    pub(super) const fn up_to(longest: Duration) -> Self {
        Self { longest, failures: 0 }
    }

    /// Counts one more failure and says how long to wait.
    pub(super) fn fail(&mut self) -> Duration {
        let wait = delay(self.failures, self.longest, RandomState::new().build_hasher().finish());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Starts over, after a session that has proved itself.
    pub(super) fn succeed(&mut self) {
        self.failures = 0;
    }
}

/// Wait after `failures` earlier ones: `BASE × 2^failures`, at most `longest`, times 0.75 to 1 as `random` has it (RFC 4271
/// section 10).
fn delay(failures: u32, longest: Duration, random: u64) -> Duration {
    let full = BASE.saturating_mul(1 << failures.min(16)).min(longest);
    full.mul_f64(0.75 + 0.25 * (random as f64 / u64::MAX as f64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAP: Duration = Duration::from_secs(10);

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits: Vec<_> = (0..8).map(|n| delay(n, CAP, u64::MAX).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
    }

    #[test]
    fn a_proven_session_starts_over() {
        let mut backoff = Backoff::up_to(CAP);
        for _ in 0..20 {
            backoff.fail();
        }
        assert!(backoff.fail() > CAP / 2);
        backoff.succeed();
        assert!(backoff.fail() <= BASE);
    }

    proptest! {
        #[test]
        fn no_wait_is_above_the_cap_or_below_three_quarters_of_its_step(n: u32, random: u64) {
            let wait = delay(n, CAP, random);
            prop_assert!(wait <= CAP);
            prop_assert!(wait >= delay(n, CAP, u64::MAX).mul_f64(0.749));
        }
    }
}
