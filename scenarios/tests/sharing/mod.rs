//! An uplink that another program uses beside the load balancer, or that cannot be used.

mod attach;
mod edge_node;
mod egress;
