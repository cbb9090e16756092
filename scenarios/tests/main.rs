//! The one test binary of the scenarios: what holds for the whole repository, and (per module) for whole topologies.

mod frame;
