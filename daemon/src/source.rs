//! Inputs that hold objects: each turns what it watches into events.

pub mod file;
pub mod files;
