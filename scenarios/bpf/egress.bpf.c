// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// A stand-in for an egress program that shares an uplink: it claims UDP packets to one address and port, marks them by their
// hop limit, and counts them. What it does not claim goes to the stack.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Hop limit of claimed packets; no host sends with it. */
#define MARK 77

/* Set before the program is loaded. */
const volatile struct {
	__u8 addr[16];
	__u16 port; /* network order */
} claim = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} claimed SEC(".maps");

SEC("xdp.frags")
int egress(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u32 zero = 0;
	__u64 *count;
	int i;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IPV6) || ip->nexthdr != IPPROTO_UDP)
		return XDP_PASS;
	for (i = 0; i < 16; i++)
		if (ip->daddr.in6_u.u6_addr8[i] != claim.addr[i])
			return XDP_PASS;
	if (udp->dest != claim.port)
		return XDP_PASS;
	ip->hop_limit = MARK;
	count = bpf_map_lookup_elem(&claimed, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
