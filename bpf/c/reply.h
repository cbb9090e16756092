/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The edge reply path: a worker's replies, encapsulated to this node's reply SID, are let out when their VIP belongs to the VPC
 * that they come from. Step 12 of docs/packet-path.md; in the kernel only, since the kernel's FIB decides where they go. */
#pragma once
#include "ecn.h"

#ifndef AF_INET
#define AF_INET 2
#endif

/* The VPC of each SID that a backend has, as `backend_meta` names it. */
MAP(reply_sources, BPF_MAP_TYPE_HASH, struct sid, __u64, 0, 1024);

/* First backend of a VIP's ring: one that has its VPC. */
inline_always struct backend_meta *any_backend(__u32 vip)
{
	struct ring_block *block;
	__u64 *state, word;
	__u32 slot, i, backend;

	state = find_word(vip);
	if (!state)
		return 0;
	word = READ_ONCE(*state);
	if (!((word >> 32) & 0x1ffff))
		return 0;
	slot = (__u32)word;
	block = find_block(slot / SLOTS_PER_BLOCK);
	if (!block)
		return 0;
	/* A slot may be empty while its backend has no endpoint. */
	for (i = 0; i < SLOTS_PER_BLOCK; i++) {
		backend = READ_ONCE(block->slot[i]);
		if (backend)
			return bpf_map_lookup_elem(&backend_meta, &backend);
	}
	return 0;
}

/* `left` when the frame is no reply; else its verdict. */
subprogram int edge_reply(ctx_t *c, int left)
{
	void *d = data(c), *e = data_end(c), *o, *in;
	__u32 payload, length, l4, vpc_vip, *vip, ports = 0, ifindex;
	struct bpf_fib_lookup fib = {};
	struct backend_meta *meta;
	union vip_lookup k = {};
	struct sid from = {};
	__u64 *vpc;
	__u8 next, proto;
	long rc;

	/* On the fabric, untagged, to this node's own function 0xc with whatever argument. */
	if (!(weir_cfg.role & ROLE_FABRIC) || d + ETH_HLEN + 40 > e || *(__u16 *)(d + 12) != bpf_htons(ETH_P_IPV6))
		return left;
	o = d + ETH_HLEN;
	if (*(__u64 *)(o + 24) != weir_cfg.src_hi || (*(__u8 *)(o + 32) & 0xf0) != 0xc0)
		return left;

	next = *(__u8 *)(o + 6);
	payload = bpf_ntohs(*(__u16 *)(o + 4));
	if ((next != IN_IPV6 && next != IN_IPV4) || ETH_HLEN + 40 + payload > frame_len(c))
		return DROP(R_REPLY_REFUSED);
	/* The source is the endpoint's SID, with hash bits in its last 16. */
	if (!in_block(*(__u64 *)(o + 8)))
		return DROP(R_REPLY_REFUSED);
	__builtin_memcpy(from.bytes, o + 8, 14);
	vpc = bpf_map_lookup_elem(&reply_sources, &from);
	if (!vpc)
		return DROP(R_REPLY_REFUSED);

	in = o + 40;
	fib.ifindex = ingress(c);
	if (next == IN_IPV6) {
		if (in + 40 + 4 > e || (*(__u8 *)in & 0xf0) != 0x60)
			return DROP(R_REPLY_REFUSED);
		length = 40 + bpf_ntohs(*(__u16 *)(in + 4));
		proto = *(__u8 *)(in + 6);
		__builtin_memcpy(k.w, in + 8, 16);
		if (is_mapped(k.d[0], k.w[2]) || in_block(*(__u64 *)(in + 24)))
			return DROP(R_REPLY_REFUSED);
		l4 = 40;
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, in + 8, 16);
		__builtin_memcpy(fib.ipv6_dst, in + 24, 16);
		if (proto == P_TCP || proto == P_UDP)
			ports = *(__u32 *)(in + 40);
	} else {
		if (in + 20 > e || (*(__u8 *)in & 0xf0) != 0x40)
			return DROP(R_REPLY_REFUSED);
		length = bpf_ntohs(*(__u16 *)(in + 2));
		proto = *(__u8 *)(in + 9);
		l4 = (*(__u8 *)in & 0xf) * 4;
		/* What has no ports in it cannot be told to be a rule's. */
		if (l4 < 20 || *(__u16 *)(in + 6) & bpf_htons(IP4_OFFSET))
			return DROP(R_REPLY_REFUSED);
		k.w[2] = bpf_htonl(0xffff);
		k.w[3] = *(__u32 *)(in + 12);
		fib.family = AF_INET;
		fib.ipv4_src = *(__u32 *)(in + 12);
		fib.ipv4_dst = *(__u32 *)(in + 16);
		if ((proto == P_TCP || proto == P_UDP) && load(c, ETH_HLEN + 40 + l4, &ports, 4))
			return DROP(R_REPLY_REFUSED);
	}
	if (length > payload || length < l4 || !proto)
		return DROP(R_REPLY_REFUSED);

	/* The source port is the rule's. */
	k.w[4] = (ports & 0xffff) | (__u32)proto << 16;
	vip = find_vip(&k);
	if (!vip)
		return DROP(R_REPLY_REFUSED);
	vpc_vip = *vip;
	meta = any_backend(vpc_vip);
	if (!meta || meta->vpc != *vpc)
		return DROP(R_REPLY_REFUSED);

	rc = bpf_fib_lookup(c, &fib, sizeof fib, 0);
	if (rc != BPF_FIB_LKUP_RET_SUCCESS)
		return DROP(R_REPLY_NO_ROUTE);
	if (copy_congestion(in, next == IN_IPV6, *(__u16 *)o) < 0)
		return DROP(R_REPLY_REFUSED);
	if (grow_head(c, -40))
		return DROP(R_INTERNAL);
	d = data(c);
	e = data_end(c);
	if (d + ETH_HLEN > e)
		return DROP(R_INTERNAL);
	__builtin_memcpy(d, fib.dmac, 6);
	__builtin_memcpy(d + 6, fib.smac, 6);
	*(__u16 *)(d + 12) = next == IN_IPV6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	ifindex = fib.ifindex;
	trace_choice(c, vpc_vip, ~0U, ~0U);
	trace_hop(c, ifindex, fib.mtu_result);
	if (ifindex == ingress(c))
		return OUT(XDP_TX, R_REPLY_FORWARDED);
	return OUT(redirect(ifindex), R_REPLY_FORWARDED);
}
