//! Compiles the BPF programs with clang, and the same headers natively for the tests that compare them with the Rust oracle.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Oldest clang whose BPF back end is tried by the project.
const MIN_CLANG: u32 = 16;

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var("OUT_DIR").context("OUT_DIR")?);
    let clang = find_clang()?;
    let next = env::var_os("CARGO_FEATURE_NEXT_LAYOUT").is_some();
    // The load balancer is built twice: the second build captures frames and sits in the slots only while somebody asks for it.
    for (program, object, define) in [
        ("lb", "lb", None),
        ("lb", "capture", Some("-DWEIR_CAPTURE")),
        ("root", "root", None),
        ("worker", "worker", None),
    ] {
        let mut command = Command::new(&clang);
        command
            .args([
                "-target",
                "bpf",
                "-mcpu=v3",
                "-O2",
                "-g",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-function",
            ])
            // linux/types.h needs the host architecture's asm headers, which clang does not search for this target.
            .args(host_includes().iter().flat_map(|d| ["-idirafter".to_owned(), d.clone()]))
            // A build path inside debug info would make the object differ from machine to machine.
            .args(["-fdebug-prefix-map=".to_owned() + &cwd()? + "=."])
            .args(next.then_some("-DWEIR_NEXT_LAYOUT"))
            .args(define)
            .arg("-c")
            .arg(format!("c/{program}.bpf.c"))
            .arg("-o")
            .arg(out.join(format!("{object}.o")));
        run(&mut command, "install the packages clang-19 and libbpf-dev (./dev does)")?;
    }
    native(&clang, &out)
}

/// The packet path as a library of this machine: `src/native.rs` calls it.
fn native(clang: &Path, out: &Path) -> Result<()> {
    let mut objects = Vec::new();
    for source in ["native", "worker_native"] {
        let object = out.join(format!("{source}.o"));
        let mut command = Command::new(clang);
        command.args(["-O2", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]);
        command.arg("-c").arg(format!("c/{source}.c")).arg("-o").arg(&object);
        run(&mut command, "install the packages clang-19 and libc6-dev (./dev does)")?;
        objects.push(object);
    }
    let library = out.join("libweir_native.a");
    // `ar` adds to an existing archive.
    let _ = std::fs::remove_file(&library);
    run(
        Command::new("ar").arg("crs").arg(&library).args(&objects),
        "install the package binutils (./dev does)",
    )?;
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=weir_native");
    Ok(())
}

fn cwd() -> Result<String> {
    Ok(env::current_dir().context("current directory")?.display().to_string())
}

fn host_includes() -> Vec<String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_else(|_| "x86_64".into());
    let multiarch = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&multiarch).is_dir() { vec![multiarch] } else { Vec::new() }
}

fn find_clang() -> Result<PathBuf> {
    let asked = env::var_os("CLANG").map(PathBuf::from);
    let names = asked.into_iter().chain(["clang-19", "clang-20", "clang-21", "clang"].map(PathBuf::from));
    for name in names {
        let Ok(version) = Command::new(&name).arg("-dumpversion").output() else { continue };
        let text = String::from_utf8_lossy(&version.stdout);
        let major = text.trim().split('.').next().and_then(|m| m.parse::<u32>().ok()).unwrap_or(0);
        if version.status.success() && major >= MIN_CLANG {
            return Ok(name);
        }
    }
    bail!(
        "compile BPF: no clang {MIN_CLANG} or newer found; install the package clang-19 (./dev does) or set CLANG"
    )
}

fn run(command: &mut Command, remedy: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("start {command:?}; {remedy}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}\n{remedy}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
