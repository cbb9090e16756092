//! Configuration and objects on a live gateway.
