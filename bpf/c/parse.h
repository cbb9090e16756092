/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Header walking for everything that is not the plain case: steps 1, 2 and 6 of docs/packet-path.md. */
#pragma once

#define P_HOPOPTS 0
#define P_TCP 6
#define P_UDP 17
#define P_ROUTING 43
#define P_FRAGMENT 44
#define P_ICMP6 58
#define P_DSTOPTS 60
#define MAX_EXTENSIONS 6
#define MAX_WALK 512
#define ETH_QINQ 0x88a8
#define ETH_VLAN 0x8100

struct ip6 {
	__be32 flow;
	__be16 payload;
	__u8 next;
	__u8 hops;
	union {
		struct {
			__u32 src[4];
			__u32 dst[4];
		};
		/* Eight-byte views for the block and mapped-address comparisons. */
		struct {
			__u64 src8[2];
			__u64 dst8[2];
		} __attribute__((packed, aligned(4)));
	};
} __attribute__((packed, aligned(4)));

union vip_lookup {
	struct vip_key key;
	__u32 w[5];
};

inline_always __u32 *lookup(const __u32 *addr, __u32 port, __u32 proto)
{
	union vip_lookup k;

	/* Whole words, so that the map's hash loads what was just stored. */
	k.w[0] = addr[0];
	k.w[1] = addr[1];
	k.w[2] = addr[2];
	k.w[3] = addr[3];
	k.w[4] = (port & 0xffff) | proto << 16;
	return find_vip(&k);
}

/* A walk over extension headers: where it starts, then where it ended. */
struct walk {
	__u32 start;      /* offset of the IPv6 header */
	__u32 end;        /* offset of the first byte that is not the packet's */
	__u32 quoted;     /* inside an ICMP error: a first fragment is walked too, since its ports are there */
	__u32 proto;      /* next header: of the IPv6 header, then where the walk ended */
	__u32 off;        /* offset of the header it ended at */
	__u32 extensions; /* headers walked */
};

/* Returns 0 or the reason to drop. */
subprogram int walk_headers(ctx_t *c, struct walk *w)
{
	__u32 start, end, off, next;
	int i;

	if (!w)
		return R_INTERNAL;
	start = w->start;
	end = w->end;
	next = w->proto;
	off = start + 40;
	w->extensions = 0;
	for (i = 0; i <= MAX_EXTENSIONS; i++) {
		__u8 h[8];
		__u32 len;
		__u16 frag;

		if (next != P_HOPOPTS && next != P_DSTOPTS && next != P_ROUTING && next != P_FRAGMENT) {
			w->proto = next;
			w->off = off;
			return 0;
		}
		if (i == MAX_EXTENSIONS)
			break;
		if (off + 8 > end || load(c, off, h, sizeof h))
			return R_TRUNCATED;
		if (next == P_ROUTING && h[3])
			return R_EXTENSION_HEADERS;
		if (next == P_FRAGMENT) {
			frag = (__u16)h[2] << 8 | h[3];
			if (frag & 0xfff8 || (frag & 1 && !w->quoted))
				return R_FRAGMENT;
		}
		len = next == P_FRAGMENT ? 8 : ((__u32)h[1] + 1) * 8;
		if (off + len > end)
			return R_TRUNCATED;
		if (off + len - start > MAX_WALK)
			return R_EXTENSION_HEADERS;
		w->extensions++;
		next = h[0];
		off += len;
	}
	return R_EXTENSION_HEADERS;
}
