// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// A small stand-in for an egress shard: UDP from inside hosts leaves with the shard's address and a port of the shard's; what
// comes back to that port goes to the host. Its tables are pinned by whoever loads it, so that the next program goes on with them.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FIRST_PORT 20000

struct host {
	__u32 addr[4];
	__u16 port; /* network order */
	__u16 pad;
};

/* Set before the program is loaded: one copy an interface. */
const volatile struct {
	__u32 shard[4];
	__u32 inside[2];  /* the first 64 bits of inside hosts */
	__u32 inside_if;  /* where inside hosts are */
	__u32 outside_if; /* where the internet is */
	__u8 inside_macs[12];
	__u8 outside_macs[12];
} nat = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct host);
	__type(value, __u16);
} ports SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u16);
	__type(value, struct host);
} hosts SEC(".maps");
/* Ports given out; packets out; packets back. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline __u64 count(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);

	return n ? __sync_fetch_and_add(n, 1) : 0;
}

/* Puts another address and port where `addr` and `port` are; the checksum follows (RFC 1624). */
static __always_inline void rewrite(struct udphdr *udp, __u32 *addr, __be16 *port, const struct host *to)
{
	__u32 from[5], now[5];
	__s64 sum;
	int i;

	for (i = 0; i < 4; i++) {
		from[i] = addr[i];
		now[i] = to->addr[i];
		addr[i] = to->addr[i];
	}
	from[4] = *port;
	now[4] = to->port;
	*port = to->port;
	sum = bpf_csum_diff(from, sizeof from, now, sizeof now, ~udp->check & 0xffff);
	sum = (sum & 0xffff) + (((__u32)sum) >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	udp->check = ~sum & 0xffff;
	if (!udp->check)
		udp->check = 0xffff;
}

static __always_inline void macs(struct ethhdr *eth, const volatile __u8 *to)
{
	__u8 *at = (__u8 *)eth;
	int i;

	for (i = 0; i < 12; i++)
		at[i] = to[i];
}

SEC("xdp.frags")
int egress(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct host *found, host = {}, shard = {};
	__u32 *src, *dst;
	__u16 *known, port;
	int i;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IPV6) || ip->nexthdr != IPPROTO_UDP)
		return XDP_PASS;
	src = ip->saddr.in6_u.u6_addr32;
	dst = ip->daddr.in6_u.u6_addr32;
	if (dst[0] == nat.shard[0] && dst[1] == nat.shard[1] && dst[2] == nat.shard[2] && dst[3] == nat.shard[3]) {
		port = udp->dest;
		found = bpf_map_lookup_elem(&hosts, &port);
		if (!found)
			return XDP_DROP;
		host = *found;
		rewrite(udp, dst, &udp->dest, &host);
		macs(eth, nat.inside_macs);
		count(2);
		return bpf_redirect(nat.inside_if, 0);
	}
	if (ctx->ingress_ifindex != nat.inside_if || src[0] != nat.inside[0] || src[1] != nat.inside[1])
		return XDP_PASS;
	for (i = 0; i < 4; i++) {
		host.addr[i] = src[i];
		shard.addr[i] = nat.shard[i];
	}
	host.port = udp->source;
	known = bpf_map_lookup_elem(&ports, &host);
	if (known) {
		port = *known;
	} else {
		port = bpf_htons((__u16)(FIRST_PORT + count(0)));
		if (bpf_map_update_elem(&hosts, &port, &host, BPF_ANY) || bpf_map_update_elem(&ports, &host, &port, BPF_ANY))
			return XDP_DROP;
	}
	shard.port = port;
	rewrite(udp, src, &udp->source, &shard);
	macs(eth, nat.outside_macs);
	count(1);
	return bpf_redirect(nat.outside_if, 0);
}

char _license[] SEC("license") = "GPL";
