/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Fragments: what a first one tells of the rest, and how the rest finds its rule; step 6 of docs/packet-path.md. */
#pragma once
#include "parse.h"
#include "forward.h"

inline_always void fragment_key(const struct packet *p, struct fragment_key *k)
{
	__builtin_memcpy(k->src, p->src, 16);
	__builtin_memcpy(k->dst, p->dst, 16);
	k->id = p->w.id;
	/* IPv6 identifies a datagram without it, and lets it differ from fragment to fragment (RFC 8200 section 4.5). */
	k->proto = p->v4 ? p->w.stated : 0;
}

/* A first fragment whose rule was found: is there need to remember it, so that the rest finds the rule, too? */
subprogram int remember_first(const struct packet *p, __u32 ports)
{
	struct fragment v = { .ports = ports };
	struct fragment_key k;
	__u32 proto;

	if (!p)
		return 0;
	v.proto = proto = p->w.proto;
	if (proto == p->w.stated && ((proto != P_TCP && proto != P_UDP) || lookup(p->dst, bpf_htons(proto), P_FRAGMENT)))
		return 0;
	fragment_key(p, &k);
	put_fragment(&k, &v);
	return 0;
}

/* Fills ports, protocol and VIP of a later fragment. Returns 0 or the reason to drop. */
subprogram int find_rest(const struct packet *p, struct flow *f)
{
	struct fragment_key k;
	struct fragment *known;
	__u32 stated, *vip;

	if (!p || !f)
		return R_INTERNAL;
	stated = p->w.stated;

	/* It would lie over a TCP header's flags (RFC 1858). */
	if (stated == P_TCP && p->w.units == 1)
		return R_FRAGMENT;
	if (stated == (p->v4 ? P_ICMP : P_ICMP6))
		return R_FRAGMENT;
	f->proto = stated;
	if (stated != P_TCP && stated != P_UDP && (p->v4 || !is_extension(stated))) {
		vip = stated ? lookup(p->dst, 0, stated) : 0;
		if (!vip)
			return R_UNSUPPORTED_PROTOCOL;
		f->vip = *vip;
		return 0;
	}
	if (stated == P_TCP || stated == P_UDP) {
		vip = lookup(p->dst, bpf_htons(stated), P_FRAGMENT);
		if (vip) {
			f->vip = *vip;
			return 0;
		}
	}
	fragment_key(p, &k);
	known = find_fragment(&k);
	if (!known)
		return R_FRAGMENT_UNKNOWN;
	f->ports = known->ports;
	f->proto = known->proto;
	vip = lookup(p->dst, f->ports >> 16, f->proto);
	if (!vip)
		return R_NO_RULE;
	f->vip = *vip;
	return 0;
}
