//! Skipping a test aloud: one line that always shows, and a count that a runner can compare with what it expects.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Names the file to which every skip appends its line.
pub const FILE_VARIABLE: &str = "WEIR_SKIPS";

/// Says that `test` cannot run here and why. The caller returns next.
///
/// The line `SKIP <test>: <reason>` goes straight to file descriptor 2, past the test runner's capture, and is
/// appended to the file that `WEIR_SKIPS` names, if it names one. A skip that cannot be recorded fails the test.
///
/// # Panics
/// The file cannot be written: a skip must not pass uncounted.
pub fn skip(test: &str, reason: impl std::fmt::Display) {
    let line = line(test, &reason.to_string());
    // Standard error may be closed; the file is the record.
    // Only the print macros are captured by the test runner; a write is not.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty())
        && let Err(e) = record(Path::new(&path), &line)
    {
        panic!("record skip in {} (named by {FILE_VARIABLE}): {e}", Path::new(&path).display());
    }
}

/// One line, whatever the reason holds.
fn line(test: &str, reason: &str) -> String {
    format!("SKIP {test}: {}\n", reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// One write in append mode, so that lines of tests that run side by side do not mix.
fn record(path: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line_whatever_its_reason() {
        assert_eq!(line("a::b", "no bridge\n  in this kernel"), "SKIP a::b: no bridge in this kernel\n");
    }

    #[test]
    fn skips_are_appended_to_the_file_one_line_each() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("skips");
        record(&path, &line("first", "no 8021q")).unwrap();
        record(&path, &line("second", "no docker")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "SKIP first: no 8021q\nSKIP second: no docker\n");
    }

    #[test]
    fn a_skip_shows_past_the_test_runners_capture() {
        const INNER: &str = "LABKIT_SKIP_INNER";
        if std::env::var_os(INNER).is_some() {
            return skip("inner", "shown although the runner captures output");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("skips");
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "skip::tests::a_skip_shows_past_the_test_runners_capture"])
            .env(INNER, "1")
            .env(FILE_VARIABLE, &path)
            .output()
            .unwrap();
        assert!(output.status.success());
        let wanted = "SKIP inner: shown although the runner captures output\n";
        assert!(String::from_utf8_lossy(&output.stderr).contains(wanted), "{output:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted);
    }
}
