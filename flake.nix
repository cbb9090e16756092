{
  description = "Weir: a regional layer-4 load balancer and the lab that proves it";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;

      # What compiles the data plane. Unwrapped, since the wrapper's hardening flags mean nothing to BPF; the headers that
      # the wrapper would have added come by C_INCLUDE_PATH.
      clang = pkgs: pkgs.llvmPackages_19.clang-unwrapped;
      bpfInputs = pkgs: [ pkgs.libbpf pkgs.linuxHeaders pkgs.glibc.dev ];
      bpfIncludes = pkgs:
        nixpkgs.lib.concatMapStringsSep ":" (p: "${p}/include") (bpfInputs pkgs)
        # clang's own headers (stddef.h, stdint.h) are an output of their own.
        + ":${(clang pkgs).lib}/lib/clang/19/include";

      # What the lab runs: routers, and what a person looks at it with.
      labTools = pkgs: [
        pkgs.frr
        pkgs.bird2
        pkgs.bpftools
        pkgs.iproute2
        pkgs.nftables
        pkgs.ethtool
        pkgs.tcpdump
        pkgs.procps
        pkgs.iputils
      ];
      rustTools = pkgs: [ pkgs.cargo pkgs.rustc pkgs.rustfmt pkgs.clippy ];
    in
    {
      packages = each (pkgs: rec {
        weir = pkgs.rustPlatform.buildRustPackage {
          pname = "weir";
          inherit version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [ "--package" "weir" ];
          nativeBuildInputs = [ (clang pkgs) pkgs.llvmPackages_19.llvm ];
          buildInputs = bpfInputs pkgs;
          CLANG = "${clang pkgs}/bin/clang";
          C_INCLUDE_PATH = bpfIncludes pkgs;
          # The tests make network namespaces and load BPF programs, which a build's sandbox refuses: `./dev verify` runs them.
          doCheck = false;
          meta = {
            description = "Regional layer-4 load balancer";
            license = nixpkgs.lib.licenses.asl20;
            mainProgram = "weir";
            platforms = systems;
          };
        };

        # One layer a store path, no shell. The number is `nobody`'s; what a gateway needs beyond an ordinary user are
        # capabilities, which whoever starts the container gives it (deploy/).
        image = pkgs.dockerTools.buildLayeredImage {
          name = "weir";
          tag = version;
          contents = [ weir pkgs.cacert ];
          config = {
            Entrypoint = [ "${weir}/bin/weir" ];
            User = "65534:65534";
            Labels = {
              "org.opencontainers.image.title" = "weir";
              "org.opencontainers.image.version" = version;
              "org.opencontainers.image.licenses" = "Apache-2.0";
            };
          };
        };

        default = weir;
      });

      devShells = each (pkgs: {
        default = pkgs.mkShell {
          packages = rustTools pkgs ++ labTools pkgs ++ bpfInputs pkgs ++ [
            (clang pkgs)
            pkgs.llvmPackages_19.llvm
            pkgs.just
            pkgs.cargo-deny
            pkgs.git
            pkgs.nix
            pkgs.pkg-config
          ];
          CLANG = "${clang pkgs}/bin/clang";
          C_INCLUDE_PATH = bpfIncludes pkgs;
        };
      });

      checks = each (pkgs: {
        weir = self.packages.${pkgs.stdenv.hostPlatform.system}.weir;
        image = self.packages.${pkgs.stdenv.hostPlatform.system}.image;
        format = pkgs.runCommand "weir-format" { nativeBuildInputs = rustTools pkgs; } ''
          cd ${self}
          cargo fmt --all --check
          touch $out
        '';
      });
    };
}
