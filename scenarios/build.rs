//! Compiles the BPF programs that benchmarks and scenarios use beside the product's own, every `bpf/*.bpf.c`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set; run by cargo")?);
    let clang = find_clang()?;
    for entry in std::fs::read_dir("bpf").context("list bpf")? {
        let source = entry.context("list bpf")?.path();
        let name = source.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if let Some(program) = name.strip_suffix(".bpf.c") {
            compile(&clang, &source, &out.join(format!("{program}.bpf.o")))?;
        }
    }
    Ok(())
}

fn compile(clang: &str, source: &Path, object: &Path) -> Result<()> {
    let multiarch =
        format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default());
    let output = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // linux/types.h needs the host architecture's asm headers, which clang does not search for this target.
        .args(Path::new(&multiarch).is_dir().then_some(["-idirafter", &multiarch]).into_iter().flatten())
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
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
    Ok(())
}

/// `$CLANG`, or the first of the usual names that runs.
fn find_clang() -> Result<String> {
    let names = env::var("CLANG").map_or_else(
        |_| ["clang-19", "clang-20", "clang-21", "clang"].map(str::to_owned).to_vec(),
        |name| vec![name],
    );
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
