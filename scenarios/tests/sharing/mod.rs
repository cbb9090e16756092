//! An uplink that a second program uses too.
