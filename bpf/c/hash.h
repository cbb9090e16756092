/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The flow hash: NH (Black et al., UMAC, CRYPTO '99) with a keyed finaliser; docs/packet-path.md, "Hash". */
#pragma once

inline_always __u64 nh_pair(__u32 a, __u32 b, int k)
{
	return (__u64)(__u32)(a + weir_cfg.nh[k]) * (__u32)(b + weir_cfg.nh[k + 1]);
}

/* The client's share of the sum, which no affinity leaves out. c: client address as four words. */
inline_always __u64 client_hash(const __u32 *c)
{
	return nh_pair(c[0], c[1], 0) + nh_pair(c[2], c[3], 2) + (weir_cfg.nh[6] | (__u64)weir_cfg.nh[7] << 32);
}

/* As `client_hash`, of an IPv4 address: that of ::ffff:a.b.c.d. */
inline_always __u64 client_hash4(__u32 c)
{
	return nh_pair(0, 0, 0) + nh_pair(bpf_htonl(0xffff), c, 2) + (weir_cfg.nh[6] | (__u64)weir_cfg.nh[7] << 32);
}

/* client: `client_hash`; ports: client port, then VIP port, as in the packet. */
inline_always __u64 flow_hash(__u64 client, __u32 ports, __u32 proto, __u32 affinity)
{
	__u64 a;

	if (affinity != AFFINITY_NONE) {
		ports = 0;
		if (affinity == AFFINITY_CLIENT_IP)
			proto = 0;
	}
	a = client + nh_pair(ports, proto, 4);
	a ^= a >> 32;
	a *= weir_cfg.fin;
	a ^= a >> 29;
	a *= 0x94d049bb133111ebULL;
	a ^= a >> 32;
	return a;
}
