// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// What the load balancer is compared with: a bare transmit, a moved head, and the least that could be called a Maglev forwarder.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define OUTER 40

SEC("xdp.frags")
int tx(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_TX;
}

SEC("xdp.frags")
int adjust(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, -OUTER) ? XDP_ABORTED : XDP_TX;
}

struct service {
	__u32 first;
	__u32 slots;
};
struct server {
	__u64 address[2];
};
struct outer {
	__u64 macs;
	__u64 source[2];
	__u32 macs_end;
	__u32 pad;
};
const volatile struct outer outer = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[5]);
	__type(value, struct service);
} services SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65537);
	__type(key, __u32);
	__type(value, __u32);
} ring SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

static __always_inline __u32 turn(__u32 word, int by) { return word << by | word >> (32 - by); }

/* Bob Jenkins' lookup3 over five words, as the kernel's jhash2 does it. */
static __always_inline __u32 jhash5(const __u32 *w, __u32 last)
{
	__u32 a, b, c;

	a = b = c = 0xdeadbeef + 5 * 4;
	a += w[0];
	b += w[1];
	c += w[2];
	a -= c; a ^= turn(c, 4); c += b;
	b -= a; b ^= turn(a, 6); a += c;
	c -= b; c ^= turn(b, 8); b += a;
	a -= c; a ^= turn(c, 16); c += b;
	b -= a; b ^= turn(a, 19); a += c;
	c -= b; c ^= turn(b, 4); b += a;
	a += w[3];
	b += last;
	c ^= b; c -= turn(b, 14);
	a ^= c; a -= turn(c, 11);
	b ^= a; b -= turn(a, 25);
	c ^= b; c -= turn(b, 16);
	a ^= c; a -= turn(c, 4);
	b ^= a; b -= turn(a, 14);
	c ^= b; c -= turn(b, 24);
	return c;
}

/* No counters, no next hop, no MTU, no reasons: address and port to a server's SID. */
SEC("xdp.frags")
int minimal(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	__u32 key[5], hash, slot, server, first;
	struct service *service;
	struct server *to;
	__u16 length;
	__u32 *entry;

	if (d + 74 > e)
		return XDP_PASS;
	if (*(__u16 *)(d + 12) != bpf_htons(ETH_P_IPV6) || (*(__u8 *)(d + 20) != 6 && *(__u8 *)(d + 20) != 17))
		return XDP_PASS;
	key[0] = *(__u32 *)(d + 38);
	key[1] = *(__u32 *)(d + 42);
	key[2] = *(__u32 *)(d + 46);
	key[3] = *(__u32 *)(d + 50);
	key[4] = *(__u16 *)(d + 56) | 6 << 16;
	service = bpf_map_lookup_elem(&services, key);
	if (!service)
		return XDP_PASS;
	hash = jhash5(d + 22, *(__u32 *)(d + 54));
	slot = service->first + (__u32)((__u64)hash * service->slots >> 32);
	entry = bpf_map_lookup_elem(&ring, &slot);
	if (!entry)
		return XDP_DROP;
	server = *entry;
	to = bpf_map_lookup_elem(&servers, &server);
	if (!to)
		return XDP_DROP;
	first = *(__u32 *)(d + 14);
	length = *(__u16 *)(d + 18);
	if (bpf_xdp_adjust_head(ctx, -OUTER))
		return XDP_DROP;
	d = (void *)(long)ctx->data;
	if (d + 14 + OUTER > (void *)(long)ctx->data_end)
		return XDP_DROP;
	*(__u64 *)d = outer.macs;
	*(__u32 *)(d + 8) = outer.macs_end;
	*(__u16 *)(d + 12) = bpf_htons(ETH_P_IPV6);
	*(__u64 *)(d + 14) = first | (__u64)bpf_htons(bpf_ntohs(length) + OUTER) << 32 | 41ULL << 48 | 64ULL << 56;
	*(__u64 *)(d + 22) = outer.source[0];
	*(__u64 *)(d + 30) = outer.source[1] ^ (__u64)hash << 32;
	*(__u64 *)(d + 38) = to->address[0];
	*(__u64 *)(d + 46) = to->address[1];
	return XDP_TX;
}

/* The same for IPv4: the address in its mapped form, so that one table serves both. */
SEC("xdp.frags")
int minimal4(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	__u32 key[5] = {}, words[4] = {}, hash, slot, server;
	struct service *service;
	struct server *to;
	__u16 length;
	__u32 *entry;

	if (d + 74 > e)
		return XDP_PASS;
	if (*(__u16 *)(d + 12) != bpf_htons(ETH_P_IP) || (*(__u8 *)(d + 23) != 6 && *(__u8 *)(d + 23) != 17))
		return XDP_PASS;
	key[2] = bpf_htonl(0xffff);
	key[3] = *(__u32 *)(d + 30);
	key[4] = *(__u16 *)(d + 36) | 6 << 16;
	service = bpf_map_lookup_elem(&services, key);
	if (!service)
		return XDP_PASS;
	words[3] = *(__u32 *)(d + 26);
	hash = jhash5(words, *(__u32 *)(d + 34));
	slot = service->first + (__u32)((__u64)hash * service->slots >> 32);
	entry = bpf_map_lookup_elem(&ring, &slot);
	if (!entry)
		return XDP_DROP;
	server = *entry;
	to = bpf_map_lookup_elem(&servers, &server);
	if (!to)
		return XDP_DROP;
	length = *(__u16 *)(d + 16);
	if (bpf_xdp_adjust_head(ctx, -OUTER))
		return XDP_DROP;
	d = (void *)(long)ctx->data;
	if (d + 14 + OUTER > (void *)(long)ctx->data_end)
		return XDP_DROP;
	*(__u64 *)d = outer.macs;
	*(__u32 *)(d + 8) = outer.macs_end;
	*(__u16 *)(d + 12) = bpf_htons(ETH_P_IPV6);
	*(__u64 *)(d + 14) = 0x60 | (__u64)length << 32 | 4ULL << 48 | 64ULL << 56;
	*(__u64 *)(d + 22) = outer.source[0];
	*(__u64 *)(d + 30) = outer.source[1] ^ (__u64)hash << 32;
	*(__u64 *)(d + 38) = to->address[0];
	*(__u64 *)(d + 46) = to->address[1];
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
