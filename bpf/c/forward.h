/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* From a matched VIP to the encapsulated frame: steps 7 and 11 of docs/packet-path.md. */
#pragma once
#include "hash.h"
#include "observe.h"

/* Next headers of the outer header (IANA): what is inside. */
#define IN_IPV4 4
#define IN_IPV6 41

/* What the parse found. `vip` and the offsets hold once a rule matched. */
struct flow {
	__u64 client; /* `client_hash` of its address: one register where the address would take four */
	__u32 ports;  /* client port, VIP port, as in the packet */
	__u32 proto;
	__u32 vip;    /* index into vip_state */
	__u32 l2;     /* bytes before the IP header */
	__u32 inner;  /* bytes of the IP packet, from its header */
	__u32 traced; /* run by `weir trace`: constant 0 on the fast paths */
	__u32 first;  /* traffic class where the first four bytes of an IPv6 header have it; other bits do not matter */
	__u32 next;   /* next header of the outer header: IPv6 or IPv4 inside */
};

/* Step 7 found the packet too big; the MTU to tell stands above bit 16. */
#define TOO_BIG(MTU) (0xff | (MTU) << 16)

inline_always int heartbeat_lost(void)
{
	__u32 bound = weir_cfg.heartbeat_jiffies;
	struct shared *s;
	__u64 beat;

	if (!bound)
		return 0;
	s = find_state();
	if (!s)
		return 1;
	beat = READ_ONCE(s->heartbeat);
	return !beat || jiffies() - beat > bound;
}

inline_always void count_packet(struct counter *n, __u32 bytes)
{
	if (n) {
		n->packets++;
		n->bytes += bytes;
	}
}

inline_always int forward(ctx_t *c, const struct flow *f, __u32 reason)
{
	struct next_hop spare, *hop;
	struct ring_block *block;
	struct backend *b;
	__u64 *state, word, hash, *p;
	__u32 slot, backend, nh, i, pmtu, mtu, low, w0, size, ifindex;
	void *d, *e;

	state = find_word(f->vip);
	if (!state)
		return DROP(R_INTERNAL);
	word = READ_ONCE(*state);
	size = (word >> 32) & 0x1ffff;
	if (!size)
		return DROP(R_NOT_LOADED);
	hash = flow_hash(f->client, f->ports, f->proto, (word >> 49) & 3);
	KEEP(hash);
	low = hash;
	slot = (__u32)word + (__u32)(((hash >> 32) * size) >> 32);
	block = find_block(slot / SLOTS_PER_BLOCK);
	if (!block)
		return DROP(R_INTERNAL);
	backend = READ_ONCE(block->slot[slot % SLOTS_PER_BLOCK]);
	if (f->traced)
		trace_choice(c, f->vip, slot, backend);
	if (!backend)
		return DROP(R_NO_BACKEND);
	b = find_backend(backend);
	if (!b)
		return DROP(R_INTERNAL);
	if (unlikely(heartbeat_lost())) {
		__builtin_memset(&spare, 0, sizeof spare);
		if (fib_hop(c, b, &spare))
			return DROP(R_NO_NEXT_HOP);
		hop = &spare;
	} else {
		nh = READ_ONCE(b->nh);
		if (!nh)
			return DROP(R_NO_NEXT_HOP);
		/* A guessed branch in place of a product in the chain of loads that leads to the hop. */
		i = nh & 0xffffff;
		if (nh >> 24 != 1)
			i += ((low & 0xffff) * (nh >> 24)) >> 16;
		hop = find_hop(i);
		if (!hop)
			return DROP(R_INTERNAL);
	}
	mtu = hop->mtu;
	pmtu = READ_ONCE(b->pmtu);
	if (pmtu && pmtu < mtu)
		mtu = pmtu;
	if (f->traced)
		trace_hop(c, hop->ifindex, mtu);
	if (mtu < MIN_FABRIC_MTU)
		return DROP(R_FABRIC_MTU);
	if (f->inner + ENCAP_LEN > mtu)
		return TOO_BIG(mtu & 0x7fff);

	if (grow_head(c, ENCAP_LEN + ETH_HLEN - f->l2))
		return DROP(R_NO_HEADROOM);
	d = data(c);
	e = data_end(c);
	if (d + ETH_HLEN + ENCAP_LEN > e)
		return DROP(R_INTERNAL);
	/* The hop's 12 bytes of MACs, stored 8 + 4; the packet's IP header lies 14 bytes in, so word stores below are unaligned. */
	*(__u64 *)d = *(__u64 *)hop->macs;
	*(__u32 *)(d + 8) = *(__u32 *)(hop->macs + 8);
	*(__u16 *)(d + 12) = bpf_htons(ETH_P_IPV6);
	w0 = (f->first & bpf_htonl(0x0ff00000)) | bpf_htonl(0x60000000 | low >> 12);
	*(__u64 *)(d + 14) = w0 | (__u64)bpf_htons(f->inner) << 32 | (__u64)f->next << 48 | 64ULL << 56;
	*(__u64 *)(d + 22) = weir_cfg.src_hi;
	*(__u64 *)(d + 30) = weir_cfg.src_lo | (__u64)bpf_htons(low & 0xffff) << 48;
	p = (__u64 *)b->sid;
	*(__u64 *)(d + 38) = p[0];
	*(__u64 *)(d + 46) = p[1];

	if (!f->traced) {
		count_packet(find_vip_counter(f->vip), f->inner);
		count_packet(find_backend_counter(backend), f->inner);
	}
	ifindex = hop->ifindex;
	if (ifindex == ingress(c))
		return OUT(XDP_TX, reason);
	return OUT(redirect(ifindex), reason);
}

/* The same, for those that are not in a hurry. */
subprogram int forward_slowly(ctx_t *c, const struct flow *f, __u32 reason)
{
	return f ? forward(c, f, reason) : DROP(R_INTERNAL);
}
