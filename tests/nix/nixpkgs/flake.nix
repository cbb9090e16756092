# A stand-in for nixpkgs that holds exactly the attributes Weir's flake uses, so that the flake can be evaluated where nixpkgs
# cannot be fetched. An attribute that is not listed here is an evaluation error, as is an argument that a builder does not
# know. Nothing can be built from it: every package is an empty derivation.
#
# It proves that all outputs evaluate and which inputs each names. It does not prove that nixpkgs has these attributes under
# these names, nor that anything builds.
{
  description = "A strict stub of nixpkgs";

  outputs = { self }:
    let
      lib = {
        genAttrs = names: f: builtins.listToAttrs (map (name: { inherit name; value = f name; }) names);
        concatMapStringsSep = sep: f: list: builtins.concatStringsSep sep (map f list);
        licenses = { asl20 = { spdxId = "Apache-2.0"; }; };
      };

      forSystem = system:
        let
          # The inputs become part of the derivation, so that evaluating it evaluates each of them.
          make = name: inputs: extra: extra // derivation {
            inherit name system;
            builder = "/bin/false";
            inputs = map (input: "${input}") inputs;
          } // { inputNames = map (input: input.name) inputs; };
          package = name: make name [ ] { };
          packages = names: lib.genAttrs names package;
        in
        packages [
          "bird2"
          "bpftools"
          "cacert"
          "cargo"
          "cargo-deny"
          "clippy"
          "ethtool"
          "frr"
          "git"
          "iproute2"
          "iputils"
          "just"
          "libbpf"
          "linuxHeaders"
          "nftables"
          "nix"
          "pkg-config"
          "procps"
          "rustc"
          "rustfmt"
          "tcpdump"
        ] // {
          stdenv.hostPlatform = { inherit system; };
          glibc.dev = package "glibc-dev";
          llvmPackages_19 = packages [ "llvm" ] // {
            clang-unwrapped = package "clang-unwrapped" // { lib = package "clang-unwrapped-lib"; };
          };

          rustPlatform.buildRustPackage =
            { pname
            , version
            , src
            , cargoLock
            , cargoBuildFlags ? [ ]
            , nativeBuildInputs ? [ ]
            , buildInputs ? [ ]
            , doCheck ? true
            , meta ? { }
            , CLANG ? ""
            , C_INCLUDE_PATH ? ""
            }:
            # Reading the lock file is what nixpkgs does with it.
            assert (builtins.fromTOML (builtins.readFile cargoLock.lockFile)) ? package;
            make "${pname}-${version}" (nativeBuildInputs ++ buildInputs ++ [ src ]) {
              inherit pname version meta CLANG C_INCLUDE_PATH;
            } // { inputNames = map (input: input.name) (nativeBuildInputs ++ buildInputs); };

          dockerTools.buildLayeredImage = { name, tag, contents, config }:
            make "${name}-${tag}.tar.gz" contents { inherit config; };

          mkShell = { packages, CLANG ? "", C_INCLUDE_PATH ? "" }:
            make "shell" packages { inherit CLANG C_INCLUDE_PATH; };

          runCommand = name: { nativeBuildInputs ? [ ] }: script:
            make name nativeBuildInputs { inherit script; };
        };
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] forSystem;
    };
}
