# Recipes of this repository. `./dev RECIPE` installs what they need first.

# list the recipes
[private]
default:
    @just --list --unsorted

# watch real traffic through a VIP: a lab comes up, things break, nothing is lost (--keep leaves it for exploring)
demo *args: build
    cargo run --quiet --locked -p scenarios --bin demo -- {{ args }}

# everything that must hold before a change lands: format, lints, builds, dependencies, tests, skips
verify:
    @tools/verify

# run tests; arguments go to cargo test (just test -p weir maglev)
test *args: build
    cargo test --locked {{ if args == "" { "--workspace" } else { args } }}

# format all code
fmt:
    cargo fmt --all

# format check and clippy, warnings being errors (clippy only where the toolchain has it)
lint:
    @tools/verify format clippy

# build the daemon, and the two other builds of it that upgrade tests need
build:
    @tools/verify --quiet builds

# dependencies: bans, licences, sources
deny:
    cargo deny --locked check bans licenses sources

# what this machine can run and what will be skipped, and why
doctor:
    @tools/doctor

# a shell with every tool on PATH
shell:
    @echo "just lists the recipes; exit leaves." && exec "${SHELL:-bash}"

# measure: nanoseconds a packet, rings, ten thousand rules (just bench xdp, just bench ring, just bench scale)
bench *args:
    cargo build --release --quiet --locked -p weir
    cargo run --release --quiet --locked -p scenarios --bin bench -- {{ args }}

# run the packet suite, and what needs VRF or netem, on other kernels under emulation (just kernels 6.1 for one)
kernels *args: build
    @tools/kernels/check {{ args }}

# fuzz each parser of bytes from outside for so many seconds (just fuzz 60; just fuzz 600 bgp)
fuzz seconds="60" *targets:
    @tools/fuzz {{ seconds }} {{ targets }}

# differential fuzz: this many mutated frames through the C headers and the oracle (just differ 10000000)
differ frames="1000000":
    WEIR_DIFFER_FRAMES={{ frames }} cargo test --release --locked -p scenarios --test main -- --exact packets::differ::mutated_frames_fare_alike_in_c_and_in_the_oracle --nocapture
