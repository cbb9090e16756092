/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* ICMPv4 made here (fragmentation needed, echo replies) and ICMPv4 errors read: steps 8 to 10 of docs/packet-path.md. */
#pragma once
#include "icmp.h"

/* 576 bytes in all: IPv4 and ICMP header, and this much of the packet. A packet too big is always longer. */
#define NEEDED_QUOTE 548

/* Sources that get no answer (RFC 1812 section 4.3.2.7): "this network", loopback, multicast, class E and broadcast. */
inline_always int no_reply_to4(__u32 src)
{
	__u32 first = src & 0xff;

	return !first || first == 127 || first >= 224;
}

/* A header without options, of an atomic datagram (RFC 6864 section 4.1); its checksum is 0. */
inline_always void header4(struct ip4 *o, __u32 total, __u32 src, __u32 dst)
{
	o->version_ihl = 0x45;
	o->tos = 0;
	o->total = bpf_htons(total);
	o->id = 0;
	o->fragment = bpf_htons(IP4_DF);
	o->ttl = 64;
	o->proto = P_ICMP;
	o->sum = 0;
	o->src = src;
	o->dst = dst;
}

/* The frame becomes the error about itself (RFC 792, RFC 1191 section 4). */
subprogram int fragmentation_needed(ctx_t *c, __u32 l2, __u32 mtu)
{
	struct ip4 ip, *o;
	__u32 *icmp;
	__s64 sum;
	void *d, *e;
	int r;

	if (load(c, l2, &ip, sizeof ip))
		return DROP(R_INTERNAL);
	if (no_reply_to4(ip.src))
		return DROP(R_TOO_BIG_SILENT);
	if (!take_token(c))
		return DROP(R_RATE_LIMITED);
	r = make_room(c, l2, 28, NEEDED_QUOTE);
	if (r)
		return r;
	d = data(c) + l2;
	e = data_end(c);
	if (d + 28 + NEEDED_QUOTE > e)
		return DROP(R_TOO_BIG_SILENT);
	o = d;
	header4(o, 28 + NEEDED_QUOTE, ip.dst, ip.src);
	sum = csum_add(d, 20, 0);
	o->sum = fold(sum);
	icmp = d + 20;
	icmp[0] = bpf_htonl(3 << 24 | 4 << 16);
	icmp[1] = bpf_htonl(mtu - ENCAP_LEN);
	/* The helper sums 512 bytes at most. */
	sum = csum_add(d + 20, 512, 0);
	sum = csum_add(d + 20 + 512, 8 + NEEDED_QUOTE - 512, sum);
	*(__u16 *)(d + 22) = fold(sum);
	return OUT(XDP_TX, R_PACKET_TOO_BIG);
}

/* A request without options becomes its reply. */
inline_always int echo_reply4(ctx_t *c, __u32 l2)
{
	__u32 src, sum;
	struct ip4 *ip;
	void *d, *e;

	d = data(c);
	e = data_end(c);
	if (l2 > ETH_HLEN + 8 || l2 < ETH_HLEN || d + ETH_HLEN > e || d + l2 + 28 > e)
		return DROP(R_INTERNAL);
	ip = d + l2;
	src = ip->src;
	if (no_reply_to4(src))
		return DROP(R_ICMP_UNHANDLED);
	if (!take_token(c))
		return DROP(R_RATE_LIMITED);
	swap_macs(d);
	header4(ip, bpf_ntohs(ip->total), ip->dst, src);
	ip->sum = fold(csum_add(ip, 20, 0));
	d = (void *)(ip + 1);
	*(__u8 *)d = 0;
	/* RFC 1624: the type went from 8 to 0. */
	sum = (__u16)~bpf_ntohs(*(__u16 *)(d + 2));
	sum += (__u16)~0x0800;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*(__u16 *)(d + 2) = bpf_htons(~sum & 0xffff);
	return OUT(XDP_TX, R_ECHO_REPLY);
}

/* As `read_quote`, of IPv4. */
inline_always int read_quote4(ctx_t *c, const struct packet *p, struct flow *f)
{
	__u32 client[4] = {}, at = p->w.off + 8, ihl;
	struct ip4 q;

	if (at + 20 > p->w.end || load(c, at, &q, sizeof q) || q.version_ihl >> 4 != 4)
		return R_ICMP_BAD_QUOTE;
	ihl = (q.version_ihl & 15) * 4;
	if (ihl < 20 || at + ihl > p->w.end || q.src != p->dst[3] || q.fragment & bpf_htons(IP4_OFFSET))
		return R_ICMP_BAD_QUOTE;
	client[2] = bpf_htonl(0xffff);
	client[3] = q.dst;
	return quoted_flow(c, p, at + ihl, client, q.proto, f);
}
