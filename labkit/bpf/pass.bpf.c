// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// An XDP program that passes every frame. A veth end with an XDP program runs NAPI, and only then does it take frames that
// XDP transmits or redirects on its peer.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

// "frags", or an MTU above a page is refused.
SEC("xdp.frags")
int labkit_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
