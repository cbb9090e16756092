//! Every rule that one `VPCEndpoint` must hold, all broken ones at once.

use crate::address;
use crate::checked::{CheckedEndpoint, SidSource};
use crate::names;
use crate::object::identity;
use crate::problem::Problem;
use crate::sid;
use crate::vpc_endpoint::{VPCEndpoint, VPCEndpointSpec};

/// Checks an endpoint. The endpoint is `None` exactly when a problem is an error.
pub fn check(endpoint: &VPCEndpoint) -> (Option<CheckedEndpoint>, Vec<Problem>) {
    let mut problems = Vec::new();
    let spec = &endpoint.spec;
    names::metadata(&endpoint.metadata, &mut problems);
    names::reference("spec.vpcRef", &spec.vpc_ref, "VPC", &mut problems);
    names::reference("spec.vpcAttachmentRef", &spec.vpc_attachment_ref, "VPC attachment", &mut problems);
    if let Err(why) = names::subdomain(&spec.node_name) {
        problems.push(Problem::error(
            "spec.nodeName",
            &spec.node_name,
            why,
            "name the node that holds the address",
        ));
    }
    let address = address::backend("spec.address", &spec.address, &mut problems);
    let sid = sid_source(spec, &mut problems);
    let checked = match (address, sid) {
        (Some(address), Some(sid)) if !crate::problem::refuses(&problems) => Some(CheckedEndpoint {
            id: identity(&endpoint.metadata),
            vpc: spec.vpc_ref.as_str().into(),
            attachment: spec.vpc_attachment_ref.as_str().into(),
            address,
            node: spec.node_name.as_str().into(),
            sid,
        }),
        _ => None,
    };
    (checked, problems)
}

fn sid_source(spec: &VPCEndpointSpec, problems: &mut Vec<Problem>) -> Option<SidSource> {
    let one = "give either sid, or function and argument";
    match (&spec.sid, spec.function, spec.argument) {
        (Some(text), None, None) => address::sid("spec.sid", text, problems).map(SidSource::Whole),
        (None, Some(function), Some(argument)) => {
            let number = u16::try_from(argument).ok().filter(|a| sid::ARGUMENTS.contains(a));
            if number.is_none() {
                let remedy = "give a number from 1 to 4095 (12 bits of the SID)";
                problems.push(Problem::error("spec.argument", argument, "does not fit a SID", remedy));
            }
            number.map(|argument| SidSource::Composed { function, argument })
        }
        (Some(text), _, _) => {
            problems.push(Problem::error("spec.sid", text, "is given beside function or argument", one));
            None
        }
        (None, Some(_), None) => {
            problems.push(Problem::error("spec.argument", "", "is missing beside function", one));
            None
        }
        (None, None, Some(_)) => {
            problems.push(Problem::error("spec.function", "", "is missing beside argument", one));
            None
        }
        (None, None, None) => {
            problems.push(Problem::error(
                "spec.sid",
                "",
                "is missing, and so are function and argument",
                one,
            ));
            None
        }
    }
}
