//! Compiles the BPF programs that scenarios put beside Weir's, with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const PROGRAMS: [&str; 1] = ["egress"];

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set; run by cargo")?);
    let clang = find_clang()?;
    let includes = system_includes(&clang)?;
    for program in PROGRAMS {
        let source = Path::new("bpf").join(format!("{program}.bpf.c"));
        let object = out.join(format!("{program}.bpf.o"));
        let output = Command::new(&clang)
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-c"])
            .args(includes.iter().flat_map(|path| ["-idirafter", path]))
            .arg("-o")
            .arg(&object)
            .arg(&source)
            .output()
            .with_context(|| format!("run {clang}"))?;
        if !output.status.success() {
            bail!(
                "compile {} with {clang}: {}\n{}(missing headers are in the packages libbpf-dev and linux-libc-dev)",
                source.display(),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(())
}

/// `$CLANG`, or the first of the usual names that runs.
fn find_clang() -> Result<String> {
    let names = env::var("CLANG").map_or_else(|_| vec!["clang-19".into(), "clang".into()], |name| vec![name]);
    for name in &names {
        if Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Ok(name.clone());
        }
    }
    bail!(
        "find clang for BPF: none of {} runs; install the package clang-19, or name one in CLANG",
        names.join(", ")
    )
}

/// Where this machine's own compiler looks for headers: the BPF target does not know `asm/`.
fn system_includes(clang: &str) -> Result<Vec<String>> {
    let output = Command::new(clang)
        .args(["-v", "-E", "-x", "c", "/dev/null", "-o", "/dev/null"])
        .output()
        .with_context(|| format!("ask {clang} for its header directories"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(text
        .lines()
        .skip_while(|line| !line.starts_with("#include <...>"))
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .map(|line| line.trim().to_owned())
        .collect())
}
