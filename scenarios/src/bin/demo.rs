//! `demo`: real traffic through a VIP in a lab, while things break.

use std::process::ExitCode;

use scenarios::demo::{Arguments, run};

fn main() -> ExitCode {
    match run(&<Arguments as clap::Parser>::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
