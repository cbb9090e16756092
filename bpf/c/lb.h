/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The load balancer's decision for one frame, step by step as docs/packet-path.md says. */
#pragma once
#include "icmp4.h"
#include "fragment.h"

/* The first 48 bits of an address are the low ones of a little-endian word. */
inline_always int in_block(__u64 hi) { return (hi ^ weir_cfg.src_hi) << 16 == 0; }
inline_always int is_mapped(__u64 hi, __u32 w2) { return !hi && w2 == bpf_htonl(0xffff); }
#include "fabric.h"

/* Steps 2, 3, 5 and 6 for IPv6: fills `p`. Returns 0 or the verdict. */
subprogram int read6(ctx_t *c, __u32 l2, struct packet *p)
{
	struct ip6 ip;
	int r;

	if (!p)
		return DROP(R_INTERNAL);
	if (load(c, l2, &ip, sizeof ip) || (ip.flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return OUT(LEFT, R_MALFORMED);

	if (is_mapped(ip.src8[0], ip.src[2]) || is_mapped(ip.dst8[0], ip.dst[2]))
		return DROP(R_MAPPED_ADDRESS);
	if (weir_cfg.role & ROLE_FABRIC && ip.dst8[0] == weir_cfg.src_hi && ip.dst8[1] == weir_cfg.selftest_lo) {
		struct shared *s = find_state();

		if (s && !traced(c))
			__sync_fetch_and_add(&s->selftest_seen, 1);
		return DROP(R_SELF_TEST);
	}
	if (weir_cfg.role & ROLE_FABRIC && fabric_ptb(c, l2, &ip))
		return DROP(R_FABRIC_PTB);
	if (in_block(ip.dst8[0]) || in_block(ip.src8[0]))
		return weir_cfg.role & ROLE_FABRIC ? OUT(LEFT, R_NOT_VIP) : DROP(R_SRV6_BLOCK);

	if (!lookup(ip.dst, 0, 0))
		return OUT(LEFT, R_NOT_VIP);
	__builtin_memcpy(p->src, ip.src, 16);
	__builtin_memcpy(p->dst, ip.dst, 16);
	p->first = ip.flow;
	p->w.start = l2;
	p->w.end = l2 + 40 + bpf_ntohs(ip.payload);
	if (p->w.end > frame_len(c))
		return DROP(R_TRUNCATED);
	p->w.proto = ip.next;
	r = walk_headers(c, &p->w);
	return r ? DROP(r) : 0;
}

/* Steps 2, 5 and 6 for IPv4: fills `p`. Returns 0 or the verdict. */
subprogram int read4(ctx_t *c, __u32 l2, struct packet *p)
{
	__u32 ihl, fragment;
	struct ip4 ip;
	int r;

	if (!p)
		return DROP(R_INTERNAL);
	if (load(c, l2, &ip, sizeof ip) || ip.version_ihl >> 4 != 4)
		return OUT(LEFT, R_MALFORMED);
	ihl = (ip.version_ihl & 15) * 4;
	if (ihl < 20 || l2 + ihl > frame_len(c) || bpf_ntohs(ip.total) < ihl)
		return OUT(LEFT, R_MALFORMED);

	if (!lookup4(ip.dst, 0, 0))
		return OUT(LEFT, R_NOT_VIP);
	p->src[2] = p->dst[2] = bpf_htonl(0xffff);
	p->src[3] = ip.src;
	p->dst[3] = ip.dst;
	p->first = bpf_htonl((__u32)ip.tos << 20);
	p->v4 = 1;
	p->w.start = l2;
	p->w.end = l2 + bpf_ntohs(ip.total);
	if (p->w.end > frame_len(c))
		return DROP(R_TRUNCATED);
	p->w.off = l2 + ihl;
	p->w.extra = ihl - 20;
	p->w.proto = p->w.stated = ip.proto;
	p->w.id = ip.id;
	fragment = bpf_ntohs(ip.fragment);
	p->df = fragment & IP4_DF;
	p->w.units = fragment & IP4_OFFSET;
	if (p->w.units)
		p->w.piece = LATER;
	else if (fragment & IP4_MF)
		p->w.piece = FIRST;
	if (ihl == 20)
		return 0;
	r = read_options(c, l2 + 20, l2 + ihl);
	return r ? DROP(r) : 0;
}

/* ICMP of either family: fills `f` with the flow that an error is about, or answers. Returns 0 or the verdict. */
subprogram int read_icmp(ctx_t *c, struct packet *p, struct flow *f)
{
	__u32 h = 0, kind;
	int r;

	if (!p || !f)
		return DROP(R_INTERNAL);
	if (p->w.piece == FIRST)
		return DROP(R_FRAGMENT);
	if (p->w.off + 8 > p->w.end || load(c, p->w.off, &h, 4))
		return DROP(R_TRUNCATED);
	/* Type in the low byte, code above it. */
	if ((h & 0xffff) == (p->v4 ? 8 : 128)) {
		if (p->w.extra)
			return DROP(R_ICMP_UNHANDLED);
		return p->v4 ? echo_reply4(c, p->w.start) : echo_reply(c, p->w.start);
	}
	kind = h & 0xff;
	if (p->v4 ? kind != 3 && kind != 11 && kind != 12 : kind < 1 || kind > 4)
		return DROP(R_ICMP_UNHANDLED);
	r = p->v4 ? read_quote4(c, p, f) : read_quote(c, p, f);
	return r ? DROP(r) : 0;
}

/* A packet to an address of ours finds its rule and is sent, or answered: from the end of step 6. */
subprogram int deliver(ctx_t *c, struct packet *p)
{
	__u32 *vip, reason = R_FORWARDED, proto;
	struct flow f = {};
	int r;

	if (!p)
		return DROP(R_INTERNAL);
	proto = p->w.proto;
	f.traced = !!traced(c);
	f.l2 = p->w.start;
	f.inner = p->w.end - p->w.start;
	f.first = p->first;
	f.next = p->v4 ? IN_IPV4 : IN_IPV6;
	f.proto = proto;
	f.client = client_hash(p->src);
	if (p->w.piece == LATER) {
		r = find_rest(p, &f);
		if (r)
			return DROP(r);
	} else if (proto == (p->v4 ? P_ICMP : P_ICMP6)) {
		r = read_icmp(c, p, &f);
		if (r)
			return r;
		reason = R_ICMP_STEERED;
	} else {
		if (proto == P_TCP || proto == P_UDP) {
			if (p->w.off + (proto == P_TCP ? 20 : 8) > p->w.end || load(c, p->w.off, &f.ports, 4))
				return DROP(p->w.piece == FIRST ? R_FRAGMENT : R_TRUNCATED);
			vip = lookup(p->dst, f.ports >> 16, proto);
			if (!vip)
				return DROP(R_NO_RULE);
		} else {
			vip = proto ? lookup(p->dst, 0, proto) : 0;
			if (!vip)
				return DROP(R_UNSUPPORTED_PROTOCOL);
		}
		f.vip = *vip;
		if (p->w.piece == FIRST && !f.traced)
			remember_first(p, f.ports);
	}
	r = forward_slowly(c, &f, reason);
	if ((r & 0xff) != 0xff)
		return r;
	if (reason == R_ICMP_STEERED)
		return DROP(R_TOO_BIG_SILENT);
	if (p->v4 && !p->df)
		return DROP(R_TOO_BIG_NO_DF);
	if (p->w.piece == LATER)
		return DROP(R_TOO_BIG_SILENT);
	return p->v4 ? fragmentation_needed(c, p->w.start, (__u32)r >> 16) : packet_too_big(c, p->w.start, (__u32)r >> 16);
}

inline_always int long_way(ctx_t *c)
{
	struct packet p = {};
	__u32 l2 = ETH_HLEN;
	__be16 field;
	__u16 type;
	int r, i;

	/* Field by field: five calls deep the stack has no room for the header (512 bytes in all, before 6.10 in steps of 32). */
	if (load(c, ETH_HLEN - 2, &field, sizeof field))
		return OUT(LEFT, R_MALFORMED);
	type = bpf_ntohs(field);
	if (load(c, 0, &field, sizeof field))
		return OUT(LEFT, R_MALFORMED);
	if (field & bpf_htons(0x0100))
		return OUT(LEFT, R_NOT_FOR_HOST);
	for (i = 0; i < 3; i++) {
		if (type != ETH_VLAN && type != ETH_QINQ)
			break;
		if (i == 2 || load(c, l2 + 2, &field, sizeof field))
			return OUT(LEFT, R_MALFORMED);
		type = bpf_ntohs(field);
		l2 += 4;
	}
	if (type == ETH_P_IPV6)
		r = read6(c, l2, &p);
	else if (type == ETH_P_IP)
		r = read4(c, l2, &p);
	else
		r = OUT(LEFT, R_NOT_IP);
	return r ? r : deliver(c, &p);
}

/* Everything but a plain TCP or UDP packet that hits a rule, and every frame that `weir trace` runs. */
subprogram int slow_path(ctx_t *c)
{
	int r = long_way(c);

	/* What is no VIP's may yet be a reply, which the caller finds out. */
	return r == OUT(LEFT, R_NOT_VIP) ? r : trace_end(c, r);
}

/* The plain case of IPv4: 14 + 20 + 20 bytes, no tag, no option, no fragment. */
inline_always int decide4(ctx_t *c)
{
	void *d = data(c), *e = data_end(c);
	__u32 *vip, total, proto, ports;
	struct flow f;
	__u64 w;
	int r;

	if (d + 54 > e || *(__u16 *)(d + 12) != bpf_htons(ETH_P_IP) || *(__u8 *)d & 1)
		return slow_path(c);
	/* The header up to the fragment offset in one load. */
	w = *(__u64 *)(d + 14);
	total = bpf_ntohs((__u16)(w >> 16));
	if ((w & 0xff) != 0x45 || (w >> 48) & bpf_htons(IP4_MF | IP4_OFFSET) || total < 40 || d + ETH_HLEN + total > e)
		return slow_path(c);
	proto = *(__u8 *)(d + 23);
	if (proto != P_TCP) {
		KEEP(proto);
		if (proto != P_UDP)
			return slow_path(c);
	}
	ports = *(__u32 *)(d + 34);
	vip = lookup4(*(__u32 *)(d + 30), ports >> 16, proto);
	if (!vip)
		return slow_path(c);
	f.client = client_hash4(*(__u32 *)(d + 26));
	KEEP(f.client);
	f.ports = ports;
	f.proto = proto;
	f.vip = *vip;
	f.traced = 0;
	f.l2 = ETH_HLEN;
	f.inner = total;
	f.first = bpf_htonl((__u32)(w >> 8 & 0xff) << 20);
	f.next = IN_IPV4;
	r = forward(c, &f, R_FORWARDED);
	if ((r & 0xff) != 0xff)
		return r;
	if (!((w >> 48) & bpf_htons(IP4_DF)))
		return DROP(R_TOO_BIG_NO_DF);
	return fragmentation_needed(c, ETH_HLEN, (__u32)r >> 16);
}

inline_always int decide(ctx_t *c)
{
	void *d = data(c), *e = data_end(c);
	struct flow f;
	__u32 *vip, plen, proto, ports;
	__u64 w, s_hi, d_hi;
	int r;

	/* All that tracing costs a packet of the wire: it has no metadata. */
	if (unlikely(metadata(c) < d) && traced(c))
		return slow_path(c);
	/* Step 4: 14 + 40 + 20 bytes, no tag, no extension header; a UDP payload under 12 bytes takes the long way. */
	if (d + 74 > e || *(__u16 *)(d + 12) != bpf_htons(ETH_P_IPV6) || *(__u8 *)d & 1)
		return decide4(c);
	/* The header up to the addresses in one load. */
	w = *(__u64 *)(d + 14);
	proto = (w >> 48) & 0xff;
	plen = bpf_ntohs((__u16)(w >> 32));
	if ((w & 0xf0) != 0x60 || plen < 20 || d + 54 + plen > e)
		return slow_path(c);
	if (proto != P_TCP) {
		/* Kept apart, or the compiler computes both comparisons for every packet. */
		KEEP(proto);
		if (proto != P_UDP)
			return slow_path(c);
	}
	s_hi = *(__u64 *)(d + 22);
	/* IPv4 VIPs stand in the table as mapped addresses: no IPv6 packet may find them. */
	d_hi = *(__u64 *)(d + 38);
	if (is_mapped(s_hi, *(__u32 *)(d + 30)) || in_block(s_hi) || !d_hi)
		return slow_path(c);
	ports = *(__u32 *)(d + 54);
	vip = lookup_words(d_hi, *(__u64 *)(d + 46), ports >> 16, proto);
	/* A VIP is never in the SRv6 block, so only a miss needs the destination looked at again. */
	if (!vip)
		return slow_path(c);
	f.client = client_hash(d + 22);
	KEEP(f.client);
	f.ports = ports;
	f.proto = proto;
	f.vip = *vip;
	f.traced = 0;
	f.l2 = ETH_HLEN;
	f.inner = 40 + plen;
	f.first = w;
	f.next = IN_IPV6;
	r = forward(c, &f, R_FORWARDED);
	if ((r & 0xff) != 0xff)
		return r;
	return packet_too_big(c, ETH_HLEN, (__u32)r >> 16);
}
