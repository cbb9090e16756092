/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What answers made here have in common: their rate, their room in the frame, their checksums. */
#pragma once
#include "forward.h"

/* One token of this CPU's bucket, which refills by `icmp_rate` a second. A traced frame takes none, and is told the same. */
inline_always int take_token(ctx_t *c)
{
	struct bucket *b = find_bucket(), copy;

	if (!b || !weir_cfg.icmp_rate)
		return 0;
	copy = *b;
	return spend(traced(c) ? &copy : b, weir_cfg.icmp_rate, now_ns());
}

inline_always __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

inline_always void swap_macs(void *d)
{
	__u16 *m = d, t;

	t = m[0]; m[0] = m[3]; m[3] = t;
	t = m[1]; m[1] = m[4]; m[4] = t;
	t = m[2]; m[2] = m[5]; m[5] = t;
}

/* Makes a frame of its link header, `shift` bytes to be filled and the first `quote` bytes of its packet; MACs are swapped.
 * Returns 0 or the verdict. */
inline_always int make_room(ctx_t *c, __u32 l2, __u32 shift, __u32 quote)
{
	void *d, *e;
	__u32 i;

	if (grow_head(c, shift))
		return DROP(R_NO_HEADROOM);
	d = data(c);
	e = data_end(c);
	if (l2 > ETH_HLEN + 8 || l2 < ETH_HLEN || d + shift + ETH_HLEN + 8 > e)
		return DROP(R_INTERNAL);
	/* The link header, tags included, moves to the new front. */
	for (i = 0; i < ETH_HLEN + 8; i += 2)
		if (i < l2)
			*(__u16 *)(d + i) = *(__u16 *)(d + shift + i);
	swap_macs(d);
	return move_tail(c, (int)(l2 + shift + quote) - (int)frame_len(c)) ? DROP(R_TOO_BIG_SILENT) : 0;
}
