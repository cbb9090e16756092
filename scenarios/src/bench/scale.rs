//! A gateway with ten thousand rules.
use super::Line;
/// Runs it.
///
/// # Errors
/// What failed.
pub fn run() -> anyhow::Result<Vec<Line>> {
    Ok(Vec::new())
}
