//! Weir's daemon as a library.
//!
//! Modules and who may import whom (a test reads the `use` lines and enforces it):
//!
//! ```text
//! model ← event, desired, maglev, flow, frame, config, status ← resolve ← state ← { source, dataplane, route }
//!       ← worker ← { check, inspect, preflight } ← { admin, metrics } ← run ← cli
//! ```
//!
//! Modules in braces never import each other; sources, data plane and routes meet in `Event`, `Desired` and `Applied`.

pub mod admin;
pub mod check;
pub mod cli;
pub mod config;
pub mod dataplane;
pub mod desired;
pub mod event;
pub mod flow;
pub mod frame;
pub mod inspect;
pub mod maglev;
pub mod metrics;
pub mod model;
pub mod preflight;
pub mod resolve;
pub mod route;
pub mod run;
pub mod source;
pub mod state;
pub mod status;
pub mod worker;
