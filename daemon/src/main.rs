//! The `weir` program.
fn main() {
    let args: Vec<String> = std::env::args().collect();
    tracing_subscriber::fmt().json().init();
    if args.get(1).map(String::as_str) == Some("gateway") {
        if let Err(e) = weir::run::gateway(std::path::Path::new(&args[3])) {
            tracing::error!(error = %e, "failed");
            std::process::exit(1);
        }
    }
}
