/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What of an outer header's congestion mark the packet inside is told (RFC 6040 section 4.2). */
#pragma once

/* ECN of the packet taken out: -1 to drop it. */
inline_always int inner_ecn(__u32 outer, __u32 inner)
{
	if (outer == 3)
		return inner ? 3 : -1;
	return outer == 1 && inner == 2 ? 1 : (int)inner;
}

/* A checksum after a 16-bit word that it covers has changed (RFC 1624, equation 3). */
inline_always __u16 recheck(__u16 sum, __u16 from, __u16 to)
{
	__u32 s = (__u16)~sum + (__u16)~from + to;

	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return ~s;
}

/* Marks the packet at `in`, `v6` or not, as the first two bytes of the outer header ask; -1 to drop it. */
inline_always int copy_congestion(void *in, int v6, __u16 outer)
{
	__u32 mark = bpf_ntohs(outer) >> 4 & 3, old;
	__u16 word;
	int ecn;

	if (v6) {
		old = bpf_ntohs(*(__u16 *)in) >> 4 & 3;
		ecn = inner_ecn(mark, old);
		if (ecn >= 0 && ecn != (int)old)
			*(__u8 *)(in + 1) = (*(__u8 *)(in + 1) & 0xcf) | ecn << 4;
		return ecn;
	}
	old = *(__u8 *)(in + 1) & 3;
	ecn = inner_ecn(mark, old);
	if (ecn >= 0 && ecn != (int)old) {
		word = *(__u16 *)in;
		*(__u8 *)(in + 1) = (*(__u8 *)(in + 1) & 0xfc) | ecn;
		*(__u16 *)(in + 10) = recheck(*(__u16 *)(in + 10), word, *(__u16 *)in);
	}
	return ecn;
}
