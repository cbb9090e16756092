/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The load balancer's decision for one frame, step by step as docs/packet-path.md says. */
#pragma once
#include "icmp.h"

/* The first 48 bits of an address are the low ones of a little-endian word. */
inline_always int in_block(__u64 hi) { return (hi ^ weir_cfg.src_hi) << 16 == 0; }
inline_always int is_mapped(__u64 hi, __u32 w2) { return !hi && w2 == bpf_htonl(0xffff); }

/* Everything but a plain TCP or UDP packet that hits a rule. */
subprogram int slow_path(ctx_t *c)
{
	struct flow f = {};
	struct walk w = {};
	struct ip6 ip;
	__u32 *vip, l2 = ETH_HLEN, end, reason = R_FORWARDED, h = 0;
	__u8 eth[ETH_HLEN], tag[4];
	__u16 type;
	int r, i;

	if (load(c, 0, eth, sizeof eth))
		return OUT(LEFT, R_MALFORMED);
	if (eth[0] & 1)
		return OUT(LEFT, R_NOT_FOR_HOST);
	type = (__u16)eth[12] << 8 | eth[13];
	for (i = 0; i < 3; i++) {
		if (type != ETH_VLAN && type != ETH_QINQ)
			break;
		if (i == 2 || load(c, l2, tag, sizeof tag))
			return OUT(LEFT, R_MALFORMED);
		type = (__u16)tag[2] << 8 | tag[3];
		l2 += 4;
	}
	if (type == ETH_P_IP)
		return OUT(LEFT, R_IPV4_UNSERVED);
	if (type != ETH_P_IPV6)
		return OUT(LEFT, R_NOT_IP);
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
	if (in_block(ip.dst8[0]) || in_block(ip.src8[0]))
		return weir_cfg.role & ROLE_FABRIC ? OUT(LEFT, R_NOT_VIP) : DROP(R_SRV6_BLOCK);

	if (!lookup(ip.dst, 0, 0))
		return OUT(LEFT, R_NOT_VIP);
	f.traced = !!traced(c);
	f.l2 = l2;
	f.inner = 40 + bpf_ntohs(ip.payload);
	f.first = ip.flow;
	end = l2 + f.inner;
	if (end > frame_len(c))
		return DROP(R_TRUNCATED);
	w.start = l2;
	w.end = end;
	w.proto = ip.next;
	r = walk_headers(c, &w);
	if (r)
		return DROP(r);
	if (w.proto == P_TCP || w.proto == P_UDP) {
		if (w.off + (w.proto == P_TCP ? 20 : 8) > end || load(c, w.off, &f.ports, 4))
			return DROP(R_TRUNCATED);
		vip = lookup(ip.dst, f.ports >> 16, w.proto);
		if (!vip)
			return DROP(R_NO_RULE);
		f.client = client_hash(ip.src);
		f.proto = w.proto;
		f.vip = *vip;
	} else if (w.proto == P_ICMP6) {
		if (w.off + 8 > end || load(c, w.off, &h, 4))
			return DROP(R_TRUNCATED);
		/* Type in the low byte, code above it. */
		if ((h & 0xffff) == 128)
			return w.extensions ? DROP(R_ICMP_UNHANDLED) : echo_reply(c, l2);
		if ((h & 0xff) < 1 || (h & 0xff) > 4)
			return DROP(R_ICMP_UNHANDLED);
		r = read_quote(c, w.off, end, ip.dst, &f);
		if (r)
			return DROP(r);
		reason = R_ICMP_STEERED;
	} else {
		return DROP(R_UNSUPPORTED_PROTOCOL);
	}
	r = forward(c, &f, reason);
	if ((r & 0xff) != 0xff)
		return r;
	return reason == R_ICMP_STEERED ? DROP(R_TOO_BIG_SILENT) : packet_too_big(c, l2, (__u32)r >> 16);
}

inline_always int decide(ctx_t *c)
{
	void *d = data(c), *e = data_end(c);
	struct flow f;
	__u32 *vip, plen, proto, ports;
	__u64 w, s_hi;
	int r;

	/* Step 4: 14 + 40 + 20 bytes, no tag, no extension header; a UDP payload under 12 bytes takes the long way. */
	if (d + 74 > e || *(__u16 *)(d + 12) != bpf_htons(ETH_P_IPV6) || *(__u8 *)d & 1)
		return slow_path(c);
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
	if (is_mapped(s_hi, *(__u32 *)(d + 30)) || in_block(s_hi))
		return slow_path(c);
	ports = *(__u32 *)(d + 54);
	vip = lookup(d + 38, ports >> 16, proto);
	/* A VIP is never in the SRv6 block nor mapped, so only a miss needs the destination looked at again. */
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
	r = forward(c, &f, R_FORWARDED);
	if ((r & 0xff) != 0xff)
		return r;
	return packet_too_big(c, ETH_HLEN, (__u32)r >> 16);
}
