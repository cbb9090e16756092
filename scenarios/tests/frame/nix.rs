//! The flake evaluates and names its inputs, against a stub of nixpkgs.
//!
//! nixpkgs itself is **not** fetched: `tests/nix/nixpkgs` stands in for it, a set of exactly the attributes that the flake
//! uses, where any other is an error. So these tests say that every output evaluates and which inputs each package has,
//! not that nixpkgs knows them by these names nor that anything builds.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A copy of what the flake reads, with a store and a home of its own.
struct Flake {
    dir: TempDir,
}

impl Flake {
    /// `None`, with a counted skip, where there is no nix.
    fn copy(test: &str) -> Result<Option<Self>> {
        if Command::new("nix").arg("--version").output().is_err() {
            super::skip(test, "nix is not installed");
            return Ok(None);
        }
        let root = super::root();
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join("flake"))?;
        std::fs::create_dir(dir.path().join("nixpkgs"))?;
        for file in ["flake.nix", "flake.lock", "Cargo.toml", "Cargo.lock"] {
            std::fs::copy(root.join(file), dir.path().join("flake").join(file))?;
        }
        std::fs::copy(root.join("tests/nix/nixpkgs/flake.nix"), dir.path().join("nixpkgs/flake.nix"))?;
        Ok(Some(Self { dir }))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("flake").join(name)
    }

    /// Runs `nix ARGS`, off line, with the stub in nixpkgs' place. `{flake}` in an argument is the copy.
    fn nix(&self, args: &[&str]) -> Result<Output> {
        let at = |name: &str| self.dir.path().join(name);
        let flake = format!("path:{}", at("flake").display());
        Command::new("nix")
            .args(["--extra-experimental-features", "nix-command flakes", "--store"])
            .arg(at("store"))
            .args(args.iter().map(|arg| arg.replace("{flake}", &flake)))
            .args(["--offline", "--no-write-lock-file", "--override-input", "nixpkgs"])
            .arg(format!("path:{}", at("nixpkgs").display()))
            .env("HOME", at("home"))
            .env_remove("XDG_CACHE_HOME")
            .output()
            .context("run nix")
    }

    fn json(&self, attribute: &str, apply: &str) -> Result<serde_json::Value> {
        let output = self.nix(&["eval", "--json", &format!("{{flake}}#{attribute}"), "--apply", apply])?;
        ensure!(output.status.success(), "{attribute}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl Drop for Flake {
    fn drop(&mut self) {
        // What lies in a store is read-only.
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.dir.path()).status();
    }
}

#[test]
fn the_flake_pins_nixpkgs() {
    let text = std::fs::read_to_string(super::root().join("flake.lock")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        lock["nodes"]["nixpkgs"],
        serde_json::json!({
            "locked": {
                "lastModified": 1_788_405_554,
                "narHash": "sha256-r2f1oUwixlgq9zOdYLqJLfS/lWBT60/IITjhTKI59JU=",
                "owner": "NixOS",
                "repo": "nixpkgs",
                "rev": "a5cc6f2c37bf518436dc8d1c288ccd0c43c2f4c4",
                "type": "github",
            },
            "original": { "owner": "NixOS", "ref": "nixos-26.05", "repo": "nixpkgs", "type": "github" },
        })
    );
}

#[test]
fn every_flake_output_evaluates_against_the_stub() {
    let Some(flake) = Flake::copy("every_flake_output_evaluates_against_the_stub").unwrap() else { return };
    println!("nixpkgs was not fetched: the flake is evaluated against the stub in tests/nix/nixpkgs");

    let output = flake.nix(&["flake", "check", "--no-build", "{flake}"]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // `flake check` says nothing of an output that is not there.
    let names = "builtins.mapAttrs (system: builtins.attrNames)";
    for (output, expected) in [
        ("packages", serde_json::json!(["default", "image", "weir"])),
        ("devShells", serde_json::json!(["default"])),
        ("checks", serde_json::json!(["format", "image", "weir"])),
    ] {
        let systems = serde_json::json!({ "aarch64-linux": expected, "x86_64-linux": expected });
        assert_eq!(flake.json(output, names).unwrap(), systems, "{output}");
    }
}

#[test]
fn every_flake_package_names_its_inputs() {
    let Some(flake) = Flake::copy("every_flake_package_names_its_inputs").unwrap() else { return };

    let inputs = "builtins.mapAttrs (name: package: package.inputNames)";
    let packages = flake.json("packages.x86_64-linux", inputs).unwrap();
    let weir = ["clang-unwrapped", "llvm", "libbpf", "linuxHeaders", "glibc-dev"];
    assert_eq!(packages["weir"], serde_json::json!(weir));
    assert_eq!(packages["default"], serde_json::json!(weir));
    assert_eq!(packages["image"], serde_json::json!([concat!("weir-", env!("CARGO_PKG_VERSION")), "cacert"]));

    let shell = flake.json("devShells.x86_64-linux.default", "shell: shell.inputNames").unwrap();
    for tool in
        ["cargo", "clippy", "just", "cargo-deny", "clang-unwrapped", "frr", "bird2", "iproute2", "nftables"]
    {
        assert!(
            shell.as_array().unwrap().iter().any(|name| name == tool),
            "the dev shell lacks {tool}: {shell}"
        );
    }

    // The image runs as an ordinary user and starts the daemon.
    let config = flake.json("packages.x86_64-linux.image", "image: image.config").unwrap();
    assert_eq!(config["User"], "65534:65534");
    assert!(config["Entrypoint"][0].as_str().unwrap().ends_with("/bin/weir"), "{config}");
}

#[test]
fn the_stub_refuses_what_it_does_not_know() {
    let Some(flake) = Flake::copy("the_stub_refuses_what_it_does_not_know").unwrap() else { return };
    let right = std::fs::read_to_string(flake.file("flake.nix")).unwrap();
    for (from, to, complaint) in [
        ("pkgs.libbpf ", "pkgs.libbpff ", "attribute 'libbpff' missing"),
        ("pname = \"weir\";", "pname = \"weir\"; cargoHash = \"\";", "unexpected argument 'cargoHash'"),
    ] {
        let wrong = right.replace(from, to);
        assert_ne!(wrong, right, "{from} is no longer in the flake");
        std::fs::write(flake.file("flake.nix"), &wrong).unwrap();
        let output = flake.nix(&["flake", "check", "--no-build", "{flake}"]).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{to} was accepted");
        assert!(said.contains(complaint), "{to}: {said}");
    }
}
