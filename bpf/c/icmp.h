/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* ICMPv6 made here (Packet Too Big, echo replies) and ICMPv6 errors read: steps 8 to 10 of docs/packet-path.md. */
#pragma once
#include "parse.h"
#include "answer.h"

/* 1280 bytes in all: IPv6 and ICMPv6 header, and this much of the packet. A packet too big is always longer. */
#define PTB_QUOTE 1232

inline_always int no_reply_to(const struct ip6 *ip)
{
	return (ip->src[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000) || !(ip->src[0] | ip->src[1] | ip->src[2] | ip->src[3]);
}

/* The frame becomes the error about itself (RFC 4443 section 3.2). */
subprogram int packet_too_big(ctx_t *c, __u32 l2, __u32 mtu)
{
	__u32 head[5] = {}, i;
	struct ip6 ip, *o;
	__u32 *icmp;
	__s64 sum;
	void *d, *e;
	int r;

	if (load(c, l2, &ip, sizeof ip))
		return DROP(R_INTERNAL);
	if (no_reply_to(&ip))
		return DROP(R_TOO_BIG_SILENT);
	if (!take_token(c))
		return DROP(R_RATE_LIMITED);
	r = make_room(c, l2, 48, PTB_QUOTE);
	if (r)
		return r;
	d = data(c) + l2;
	e = data_end(c);
	if (d + 48 + PTB_QUOTE > e)
		return DROP(R_TOO_BIG_SILENT);
	o = d;
	o->flow = bpf_htonl(0x60000000);
	o->payload = bpf_htons(8 + PTB_QUOTE);
	o->next = P_ICMP6;
	o->hops = 64;
	for (i = 0; i < 4; i++) {
		o->src[i] = ip.dst[i];
		o->dst[i] = ip.src[i];
	}
	icmp = d + 40;
	icmp[0] = bpf_htonl(2 << 24);
	icmp[1] = bpf_htonl(mtu - ENCAP_LEN);
	head[0] = bpf_htonl(8 + PTB_QUOTE);
	head[1] = bpf_htonl(P_ICMP6);
	head[2] = icmp[0];
	head[3] = icmp[1];
	/* The helper sums 512 bytes at most. */
	sum = csum_add(head, 16, 0);
	sum = csum_add(d + 8, 32, sum);
	sum = csum_add(d + 48, 512, sum);
	sum = csum_add(d + 48 + 512, 512, sum);
	sum = csum_add(d + 48 + 1024, PTB_QUOTE - 1024, sum);
	*(__u16 *)(d + 42) = fold(sum);
	return OUT(XDP_TX, R_PACKET_TOO_BIG);
}

inline_always int echo_reply(ctx_t *c, __u32 l2)
{
	struct ip6 *ip;
	__u32 i, t, sum;
	void *d, *e;

	d = data(c);
	e = data_end(c);
	if (l2 > ETH_HLEN + 8 || l2 < ETH_HLEN || d + ETH_HLEN > e || d + l2 + 48 > e)
		return DROP(R_INTERNAL);
	ip = d + l2;
	if (no_reply_to(ip))
		return DROP(R_ICMP_UNHANDLED);
	if (!take_token(c))
		return DROP(R_RATE_LIMITED);
	swap_macs(d);
	for (i = 0; i < 4; i++) {
		t = ip->src[i];
		ip->src[i] = ip->dst[i];
		ip->dst[i] = t;
	}
	ip->flow = bpf_htonl(0x60000000);
	ip->hops = 64;
	d = (void *)(ip + 1);
	*(__u8 *)d = 129;
	/* RFC 1624: the type went from 128 to 129; the swap of the addresses changes no sum. */
	sum = (__u16)~bpf_ntohs(*(__u16 *)(d + 2));
	sum += (__u16)~0x8000 + 0x8100;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*(__u16 *)(d + 2) = bpf_htons(~sum & 0xffff);
	return OUT(XDP_TX, R_ECHO_REPLY);
}

/* Fills `f` with the flow of a packet that went from the VIP to a client; the error `p` quotes its upper layer at `off`. */
inline_always int quoted_flow(ctx_t *c, const struct packet *p, __u32 off, const __u32 *client, __u32 proto, struct flow *f)
{
	__u32 *vip, ports = 0;

	if (proto == P_TCP || proto == P_UDP) {
		if (off + 4 > p->w.end || load(c, off, &ports, 4))
			return R_ICMP_BAD_QUOTE;
		ports = ports << 16 | ports >> 16;
	}
	vip = proto ? lookup(p->dst, ports >> 16, proto) : 0;
	if (!vip)
		return R_ICMP_BAD_QUOTE;
	f->client = client_hash(client);
	f->ports = ports;
	f->proto = proto;
	f->vip = *vip;
	return 0;
}

/* Fills `f` with the flow that the error `p` quotes. What `p` says of its own headers is lost: the stack has no room for two
 * walks. Returns 0 or a reason. */
inline_always int read_quote(ctx_t *c, struct packet *p, struct flow *f)
{
	__u32 at = p->w.off + 8, *dst = p->dst;
	struct ip6 q;

	if (at + 40 > p->w.end || load(c, at, &q, sizeof q) || (q.flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return R_ICMP_BAD_QUOTE;
	if (q.src[0] != dst[0] || q.src[1] != dst[1] || q.src[2] != dst[2] || q.src[3] != dst[3])
		return R_ICMP_BAD_QUOTE;
	p->w.start = at;
	p->w.quoted = 1;
	p->w.proto = q.next;
	if (walk_headers(c, &p->w))
		return R_ICMP_BAD_QUOTE;
	return quoted_flow(c, p, p->w.off, q.dst, p->w.proto, f);
}
