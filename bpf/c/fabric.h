/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What the fabric says to this node about its own encapsulated packets: step 3a of docs/packet-path.md. */
#pragma once
#include "forward.h"

#define IPV6_MIN_MTU 1280

/* Takes a Packet Too Big in when it quotes a packet of ours to a SID; 0 when it is nothing of the kind. */
subprogram int fabric_ptb(ctx_t *c, __u32 l2, const struct ip6 *ip)
{
	struct ip6 q;
	__u32 icmp[2], mtu;

	if (!ip || ip->next != P_ICMP6 || bpf_ntohs(ip->payload) < 8 + 40)
		return 0;
	/* The low 16 bits of our source, most significant in a little-endian word, are the flow's. */
	if (ip->dst8[0] != weir_cfg.src_hi || (ip->dst8[1] ^ weir_cfg.src_lo) << 16)
		return 0;
	if (l2 + 40 + bpf_ntohs(ip->payload) > frame_len(c))
		return 0;
	if (load(c, l2 + 40, icmp, sizeof icmp) || load(c, l2 + 48, &q, sizeof q))
		return 0;
	mtu = bpf_ntohl(icmp[1]);
	if ((icmp[0] & 0xff) != 2 || mtu < IPV6_MIN_MTU || mtu > 0xffff)
		return 0;
	if ((q.flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000) || (q.next != IN_IPV6 && q.next != IN_IPV4))
		return 0;
	if (q.src8[0] != ip->dst8[0] || q.src8[1] != ip->dst8[1] || !in_block(q.dst8[0]))
		return 0;
	if (!traced(c))
		learn(q.dst, mtu);
	return 1;
}
