//! Configuration and objects, good and bad, on gateways that run.

mod files;
mod forwarding;
mod locator;
mod refusals;
mod region;
