//! Ring build and heal: runs the daemon's own benchmark and reads its ratios.

use std::process::Command;

use anyhow::{Context as _, bail};

use super::Line;

/// Most that a build may take, as a multiple of the fastest straightforward version.
const BUILD: f64 = 1.3;
/// Most that a heal after one death may take, as a multiple of a build.
const HEAL: f64 = 0.25;
/// The block of the benchmark's output that has bounds.
const BLOCK: &str = "65537 slots, 64 members";

/// Runs the benchmark and prints its ratios.
///
/// # Errors
/// When it fails or prints something else.
pub fn run() -> anyhow::Result<Vec<Line>> {
    // `--list` keeps criterion from timing once more what the ratios are already of.
    let output = Command::new(env!("CARGO"))
        .args(["bench", "--quiet", "--locked", "-p", "weir", "--bench", "ring", "--", "--list"])
        .output()
        .context("run cargo bench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "cargo bench -p weir --bench ring: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    print!(
        "{}",
        text.lines().filter(|line| !line.contains(": benchmark")).fold(String::new(), |t, l| t + l + "\n")
    );
    parse(&text)
}

/// The bounded lines: third column of a row is the multiple of the fastest straightforward version, fifth that of a build.
fn parse(text: &str) -> anyhow::Result<Vec<Line>> {
    let block: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != BLOCK)
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .collect();
    let ratio = |row: &str, of: &str| -> anyhow::Result<f64> {
        let line = block.iter().find(|line| line.trim_start().starts_with(row));
        let line =
            line.with_context(|| format!("the ring benchmark printed no row {row:?} under {BLOCK:?}"))?;
        let before = line.split(of).next().unwrap_or_default();
        let number = before.split_whitespace().next_back().unwrap_or_default();
        number.parse().with_context(|| format!("read the ratio {of:?} of {line:?}"))
    };
    Ok(vec![
        Line::new(
            "ring build 65537 x 64, of the fastest straightforward",
            ratio("build", " x fastest")?,
            "x",
            Some(BUILD),
        ),
        Line::new(
            "ring heal after one death, of a build",
            ratio("heal one death", " x build")?,
            "x",
            Some(HEAL),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_read_from_the_block_with_bounds() {
        let text = "65537 slots, 64 members\n  build               1000.0 us    1.250 x fastest straightforward    1.000 x build\n  heal one death       \
                    100.0 us    0.125 x fastest straightforward    0.100 x build\n65537 slots, 512 members\n  build  9 us  9.0 x fastest \
                    straightforward 1.0 x build\n";
        let lines = parse(text).unwrap();
        assert_eq!(lines.iter().map(|l| l.value).collect::<Vec<_>>(), [1.25, 0.1]);
        assert!(lines.iter().all(Line::holds));
        assert!(parse("4093 slots, 8 members\n").is_err());
    }
}
