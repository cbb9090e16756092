//! Traffic over time, as the report draws it.

use std::time::{Duration, Instant};

use labkit::report::Series;
use labkit::traffic::Sample;

use super::load::Account;

/// Width of a point of the picture.
const BIN: Duration = Duration::from_millis(500);

/// The picture's lines: UDP packets of each tenant a second, those lost, and TCP messages of each tenant. `zero` is the scenario's
/// start.
pub fn series(account: &Account, zero: Instant) -> Vec<Series> {
    let offset = account.began.saturating_duration_since(zero);
    let mut lines = Vec::new();
    let line = |name: String, unit: &str, points| Series { name, unit: unit.into(), points };
    for track in &account.tracks {
        let name = format!("UDP, tenant {}", track.tenant.letter);
        lines.push(line(
            name,
            "packets answered a second",
            rates(&track.packets, offset, |s| s.sent - s.lost),
        ));
    }
    let all: Vec<Sample> = account.tracks.iter().flat_map(|track| track.packets.clone()).collect();
    lines.push(line("UDP, lost".into(), "packets answered a second", rates(&all, offset, |s| s.lost)));
    for track in &account.tracks {
        let name = format!("TCP, tenant {}", track.tenant.letter);
        lines.push(line(
            name,
            "messages answered a second",
            rates(&track.messages, offset, |s| s.sent - s.lost),
        ));
    }
    lines
}

/// Sums samples of any order into whole bins of the scenario's time; the first and the last one, which are cut, are left out.
fn rates(samples: &[Sample], offset: Duration, count: impl Fn(&Sample) -> u64) -> Vec<(f64, f64)> {
    let bin = |sample: &Sample| ((offset + sample.at).as_nanos() / BIN.as_nanos()) as usize;
    let (first, last) = (samples.iter().map(bin).min(), samples.iter().map(bin).max());
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let mut sums = vec![0; last + 1];
    for sample in samples {
        sums[bin(sample)] += count(sample);
    }
    let width = BIN.as_secs_f64();
    let point = |(n, sum): (usize, &u64)| ((n as f64 + 0.5) * width, *sum as f64 / width);
    sums.iter().enumerate().take(last).skip(first + 1).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_the_scenarios_time_and_cut_bins_left_out() {
        let sample = |at: u64, sent| Sample { at: Duration::from_millis(at), sent, lost: 1 };
        // At 0.90, 1.00, 1.40, 1.50 and 2.10 s; bins of 0.5 s from 0.5 (cut), 1.0, 1.5 and 2.0 (cut).
        let samples = [sample(1200, 1), sample(0, 9), sample(100, 2), sample(500, 3), sample(600, 4)];
        let rates = rates(&samples, Duration::from_millis(900), |s| s.sent);
        assert_eq!(rates, [(1.25, 10.0), (1.75, 8.0)]);
    }
}
