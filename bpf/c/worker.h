/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The worker's decision for one frame from the fabric: steps W1 to W7 of docs/worker-path.md. */
#pragma once
#include "ecn.h"

#define LEFT 7
#define OUT(ACTION, REASON) ((ACTION) | (REASON) << 8)
#define DROP(REASON) OUT(XDP_DROP, REASON)
#define W_VLAN bpf_htons(0x8100)
#define W_QINQ bpf_htons(0x88a8)
#define P_IPIP 4
#define P_TCP 6
#define P_UDP 17
#define P_IPV6 41
#define P_ROUTING 43
#define TCP_SYN 0x02
/* IPv6's least MTU leaves this to a segment; nothing is clamped below. */
#define LEAST_PACKET 1280

inline_always void count_packet(struct w_counter *n, __u32 bytes)
{
	if (n) {
		n->packets++;
		n->bytes += bytes;
	}
}

/* Finds the MSS option of a SYN: `*at` is the offset of its two bytes. 0 when there is none. A TCP header without one means 536
 * (RFC 9293 section 3.7.1), which always fits. `LOAD` reads bytes of the context. */
#define FIND_MSS(NAME, CONTEXT, LOAD) \
subprogram int NAME(CONTEXT *c, __u32 tcp, __u32 *at) \
{ \
	__u8 h[2]; \
	__u32 off, end; \
	int i; \
\
	if (!at || LOAD(c, tcp + 12, h, 2) || !(h[1] & TCP_SYN)) \
		return 0; \
	end = tcp + (h[0] >> 4) * 4; \
	off = tcp + 20; \
	for (i = 0; i < 40; i++) { \
		if (off + 4 > end || LOAD(c, off, h, 2) || !h[0]) \
			return 0; \
		if (h[0] == 2) { \
			*at = off + 2; \
			return h[1] == 4; \
		} \
		if (h[0] == 1) { \
			off += 1; \
			continue; \
		} \
		if (h[1] < 2) \
			return 0; \
		off += h[1]; \
	} \
	return 0; \
}

FIND_MSS(find_mss, frame_t, load)

/* Lowers the MSS of a SYN so that a whole packet has at most `largest` bytes. Headers: 60 bytes for IPv6, 40 for IPv4. */
inline_always void clamp_mss(frame_t *c, __u32 tcp, __u32 largest, __u32 headers)
{
	__u16 old, limit, sum;
	__u32 at = 0;

	if (largest < LEAST_PACKET || !find_mss(c, tcp, &at))
		return;
	if (load(c, at, &old, 2))
		return;
	limit = largest - headers;
	if (bpf_ntohs(old) <= limit || load(c, tcp + 16, &sum, 2))
		return;
	limit = bpf_htons(limit);
	/* At an odd offset the word's bytes count the other way round. */
	if ((at - tcp) & 1)
		sum = recheck(sum, old << 8 | old >> 8, limit << 8 | limit >> 8);
	else
		sum = recheck(sum, old, limit);
	store(c, at, &limit, 2);
	store(c, tcp + 16, &sum, 2);
}

inline_always int is_gateway(const struct w_params *p, __u64 hi)
{
	int i;

	for (i = 0; i < W_GATEWAYS; i++)
		if ((hi & p->gateways[i].mask) == p->gateways[i].hi)
			return 1;
	return 0;
}

union sid_lookup {
	struct w_sid_key key;
	__u32 w[5];
};

/* What is wrong counts only when the SID is one of ours; an unknown one is the stack's. */
subprogram int refuse(__u32 sid, __u32 reason)
{
	union sid_lookup k = { .w = { 0, 0, 0, 0, sid | W_OWN_SID << 16 } };

	return find_sid(&k.key) ? DROP(reason) : OUT(LEFT, WR_UNKNOWN_SID);
}

/* Puts the endpoint's own address in place of the VIP as destination; ports stay. Returns 0 or the reason to drop. */
subprogram int translate_in(frame_t *c, __u32 in, const struct w_binding *b, __u32 index)
{
	struct w_port_key k = {};
	__u16 word, sum, *to, was;
	__u32 l4, at, field, i, first;
	__u8 v, proto;
	__u32 *found;

	if (!b || load(c, in, &v, 1))
		return WR_INTERNAL;
	if (v >> 4 == 6) {
		at = in + 24;
		l4 = in + 40;
		first = 0;
		if (load(c, in + 6, &proto, 1))
			return WR_INTERNAL;
	} else {
		at = in + 16;
		l4 = in + (v & 0xf) * 4;
		/* The last four bytes of the mapped form. */
		first = 6;
		if (load(c, in + 9, &proto, 1) || load(c, in + 6, &word, 2))
			return WR_INTERNAL;
		if (word & bpf_htons(0x3fff))
			return WR_UNTRANSLATABLE;
	}
	if (proto != P_TCP && proto != P_UDP)
		return WR_UNTRANSLATABLE;
	field = l4 + (proto == P_TCP ? 16 : 6);
	if (load(c, l4 + 2, k.port, 2) || load(c, field, &sum, 2))
		return WR_UNTRANSLATABLE;
	k.endpoint = b->endpoint;
	k.proto = proto;
	k.family = v >> 4;
	found = find_service(&k);
	if (!found || *found != index)
		return WR_NOT_BOUND;
	to = (__u16 *)b->backend;
	/* A UDP checksum of 0 says that there is none. */
	if (proto == P_TCP || sum) {
		for (i = 0; i < 8; i++)
			if (i >= first)
				sum = recheck(sum, ((__u16 *)b->vip)[i], to[i]);
		if (proto == P_UDP && !sum)
			sum = 0xffff;
		store(c, field, &sum, 2);
	}
	if (first) {
		if (load(c, in + 10, &was, 2))
			return WR_INTERNAL;
		was = recheck(was, ((__u16 *)b->vip)[6], to[6]);
		was = recheck(was, ((__u16 *)b->vip)[7], to[7]);
		store(c, in + 10, &was, 2);
		store(c, at, (void *)&b->backend[12], 4);
	} else {
		store(c, at, (void *)b->backend, 16);
	}
	return 0;
}

inline_always int decapsulate(frame_t *c)
{
	void *d = data(c), *e = data_end(c), *o, *in;
	__u32 l2 = ETH_HLEN, payload, sid, length, index, to, tcp, i;
	union sid_lookup k;
	struct w_binding *b;
	struct w_endpoint *point;
	struct w_params *p;
	__u8 next, proto;
	__u64 macs;
	__u32 macs2, headers;
	__u32 *found;
	__u16 type;

	/* W1 */
	if (d + ETH_HLEN > e)
		return OUT(LEFT, WR_MALFORMED);
	if (*(__u8 *)d & 1)
		return OUT(LEFT, WR_NOT_FOR_HOST);
	type = *(__u16 *)(d + 12);
	if (type == W_VLAN || type == W_QINQ) {
		if (d + ETH_HLEN + 4 > e)
			return OUT(LEFT, WR_MALFORMED);
		type = *(__u16 *)(d + 16);
		l2 = ETH_HLEN + 4;
		if (type == W_VLAN || type == W_QINQ) {
			if (d + ETH_HLEN + 8 > e)
				return OUT(LEFT, WR_MALFORMED);
			type = *(__u16 *)(d + 20);
			l2 = ETH_HLEN + 8;
			if (type == W_VLAN || type == W_QINQ)
				return OUT(LEFT, WR_MALFORMED);
		}
	}
	if (type != bpf_htons(ETH_P_IPV6))
		return OUT(LEFT, WR_NOT_IP);
	o = d + l2;
	if (o + 40 > e || (*(__u8 *)o & 0xf0) != 0x60)
		return OUT(LEFT, WR_MALFORMED);

	/* W2: 64 bits of locator, 4 of function, 12 of argument, and nothing after. */
	if (*(__u64 *)(o + 24) != worker_cfg.locator_hi)
		return OUT(LEFT, WR_NOT_SID);
	sid = *(__u16 *)(o + 32);
	if (*(__u16 *)(o + 34) | *(__u32 *)(o + 36))
		return OUT(LEFT, WR_NOT_SID);
	type = *(__u8 *)(o + 32) & 0xf0;
	if (type != 0xe0 && type != 0xd0)
		return OUT(LEFT, WR_NOT_SID);

	/* W3 */
	p = find_params();
	if (!p)
		return refuse(sid, WR_INTERNAL);
	if (!is_gateway(p, *(__u64 *)(o + 8)))
		return refuse(sid, WR_FOREIGN_SOURCE);
	next = *(__u8 *)(o + 6);
	payload = bpf_ntohs(*(__u16 *)(o + 4));
	if (next != P_IPV6 && next != P_IPIP)
		return refuse(sid, next == P_ROUTING ? WR_ROUTING_HEADER : WR_NOT_ENCAPSULATED);
	if (l2 + 40 + payload > frame_len(c))
		return refuse(sid, WR_TRUNCATED);

	/* W4 */
	in = o + 40;
	if (next == P_IPV6) {
		if (payload < 40)
			return refuse(sid, WR_BAD_INNER);
		if (in + 40 > e)
			return refuse(sid, WR_TRUNCATED);
		length = 40 + bpf_ntohs(*(__u16 *)(in + 4));
		if ((*(__u8 *)in & 0xf0) != 0x60 || length > payload)
			return refuse(sid, WR_BAD_INNER);
		k.w[0] = *(__u32 *)(in + 24);
		k.w[1] = *(__u32 *)(in + 28);
		k.w[2] = *(__u32 *)(in + 32);
		k.w[3] = *(__u32 *)(in + 36);
		if ((!(k.w[0] | k.w[1]) && k.w[2] == bpf_htonl(0xffff)) ||
		    (!(*(__u32 *)(in + 8) | *(__u32 *)(in + 12)) && *(__u32 *)(in + 16) == bpf_htonl(0xffff)))
			return refuse(sid, WR_MAPPED_ADDRESS);
		proto = *(__u8 *)(in + 6);
		tcp = 40;
		headers = 60;
	} else {
		if (payload < 20)
			return refuse(sid, WR_BAD_INNER);
		if (in + 20 > e)
			return refuse(sid, WR_TRUNCATED);
		length = bpf_ntohs(*(__u16 *)(in + 2));
		tcp = (*(__u8 *)in & 0xf) * 4;
		if ((*(__u8 *)in & 0xf0) != 0x40 || tcp < 20 || length < tcp || length > payload)
			return refuse(sid, WR_BAD_INNER);
		k.w[0] = 0;
		k.w[1] = 0;
		k.w[2] = bpf_htonl(0xffff);
		k.w[3] = *(__u32 *)(in + 16);
		/* A later fragment has no TCP header where one would be. */
		proto = *(__u16 *)(in + 6) & bpf_htons(0x1fff) ? 0 : *(__u8 *)(in + 9);
		headers = 40;
	}

	/* W5 */
	k.w[4] = sid;
	found = find_sid(&k.key);
	if (!found)
		return refuse(sid, WR_NOT_BOUND);
	index = *found;
	b = find_binding(index);
	if (!b)
		return DROP(WR_INTERNAL);
	to = READ_ONCE(b->endpoint);
	point = find_endpoint(to);
	if (!point)
		return DROP(WR_INTERNAL);
	if (!READ_ONCE(point->ifindex))
		return DROP(WR_NO_ENDPOINT);

	/* W6: what the fabric marked is told the endpoint. */
	if (copy_congestion(in, next == P_IPV6, *(__u16 *)o) < 0)
		return DROP(WR_CONGESTION);
	if (b->flags & W_FLAG_TRANSLATE) {
		i = translate_in(c, l2 + 40, b, index);
		if (i)
			return DROP(i);
	}
	macs = *(__u64 *)d;
	macs2 = *(__u32 *)(d + 8);
	if (proto == P_TCP)
		clamp_mss(c, l2 + 40 + tcp, p->to_pod_max, headers);

	/* W7 */
	if (shrink_head(c, l2 - ETH_HLEN + W_ENCAP_LEN))
		return DROP(WR_INTERNAL);
	d = data(c);
	e = data_end(c);
	if (d + ETH_HLEN > e)
		return DROP(WR_INTERNAL);
	*(__u64 *)d = macs;
	*(__u32 *)(d + 8) = macs2;
	*(__u16 *)(d + 12) = next == P_IPV6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	if (mark_frame(c, to))
		return DROP(WR_NO_METADATA);
	count_packet(find_in(index), length);
	return OUT(XDP_PASS, WR_DECAPSULATED);
}
