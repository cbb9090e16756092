//! Durations as Go writes them: `10s`, `1m30s`, `250ms`, `1.5h`.

use std::time::Duration;

/// A text that is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no duration")]
pub struct BadDuration;

/// Parses a Go-style duration: numbers, each with a unit of `ns`, `us`, `µs`, `ms`, `s`, `m` or `h`; not negative.
/// `0` needs no unit.
pub fn parse(text: &str) -> Result<Duration, BadDuration> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total: u128 = 0;
    if rest.is_empty() {
        return Err(BadDuration);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(BadDuration)?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(end);
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(BadDuration),
        };
        total = total.checked_add(scaled(number, unit)?).ok_or(BadDuration)?;
        rest = next;
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| BadDuration)
}

/// A decimal number times a unit, in nanoseconds, cut below one.
fn scaled(number: &str, unit: u128) -> Result<u128, BadDuration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || number.len() > 20 || fraction.contains('.') {
        return Err(BadDuration);
    }
    let parse = |s: &str| if s.is_empty() { Ok(0) } else { s.parse::<u128>().map_err(|_| BadDuration) };
    let whole = parse(whole)?.checked_mul(unit).ok_or(BadDuration)?;
    let part = parse(fraction)?.checked_mul(unit).ok_or(BadDuration)? / 10u128.pow(fraction.len() as u32);
    whole.checked_add(part).ok_or(BadDuration)
}

/// Writes a duration so that [`parse`] reads it back, as short as it goes: `90s` is `1m30s`.
pub fn format(duration: Duration) -> String {
    let mut nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    let units = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    for (name, size) in units {
        if nanos >= size {
            text += &(nanos / size).to_string();
            text += name;
            nanos %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[rstest::rstest]
    #[case("10s", 10_000)]
    #[case("1m30s", 90_000)]
    #[case("250ms", 250)]
    #[case("1.5h", 5_400_000)]
    #[case(".5s", 500)]
    #[case("0", 0)]
    fn go_durations_are_read(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest::rstest]
    #[case("")]
    #[case("10")]
    #[case("s")]
    #[case("-1s")]
    #[case("1 s")]
    #[case("1d")]
    #[case("1.2.3s")]
    #[case(".s")]
    #[case("99999999999999999999h")]
    fn anything_else_is_refused(#[case] text: &str) {
        assert_eq!(parse(text), Err(BadDuration));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos in any::<u64>()) {
            let d = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(d)), Ok(d));
        }

        #[test]
        fn no_text_panics(text in "\\PC*|[0-9.nuµmsh]{0,40}") {
            let _ = parse(&text);
        }
    }
}
