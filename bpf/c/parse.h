/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Headers of everything that is not the plain case, up to the upper layer: steps 1, 2 and 6 of docs/packet-path.md. */
#pragma once

#define P_HOPOPTS 0
#define P_ICMP 1
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

struct ip4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total;
	__be16 id;
	__be16 fragment; /* reserved, don't fragment, more fragments, offset */
	__u8 ttl;
	__u8 proto;
	__u16 sum;
	__u32 src;
	__u32 dst;
};
#define IP4_DF 0x4000
#define IP4_MF 0x2000
#define IP4_OFFSET 0x1fff

union vip_lookup {
	struct vip_key key;
	__u64 d[2];
	__u32 w[5];
};

/* hi, lo: the address as two words in memory order. */
inline_always __u32 *lookup_words(__u64 hi, __u64 lo, __u32 port, __u32 proto)
{
	union vip_lookup k;

	/* Whole words, so that the map's hash loads what was just stored. */
	k.d[0] = hi;
	k.d[1] = lo;
	k.w[4] = (port & 0xffff) | proto << 16;
	return find_vip(&k);
}

inline_always __u32 *lookup(const __u32 *addr, __u32 port, __u32 proto)
{
	return lookup_words(addr[0] | (__u64)addr[1] << 32, addr[2] | (__u64)addr[3] << 32, port, proto);
}

/* IPv4 stands in the tables as ::ffff:a.b.c.d. */
inline_always __u32 *lookup4(__u32 addr, __u32 port, __u32 proto)
{
	return lookup_words(0, bpf_htonl(0xffff) | (__u64)addr << 32, port, proto);
}

/* Which part of a datagram a packet is. */
enum piece { WHOLE = 0, FIRST, LATER };

/* A walk over what lies between the IP header and the upper layer: where it starts, then where it ended. */
struct walk {
	__u32 start;  /* offset of the IP header */
	__u32 end;    /* offset of the first byte that is not the packet's */
	__u32 quoted; /* inside an ICMP error: a first fragment is like a whole packet, since its ports are there */
	__u32 proto;  /* next header: of the IP header, then where the walk ended */
	__u32 off;    /* offset of the header it ended at */
	__u32 extra;  /* extension headers walked; of IPv4, bytes of options */
	__u32 piece;  /* enum piece */
	__u32 stated; /* of a fragment: protocol that each fragment states */
	__u32 id;     /* of a fragment: identification, as in the packet */
	__u32 units;  /* of a fragment: offset in units of 8 bytes */
};

/* A packet to an address of ours. */
struct packet {
	__u32 src[4]; /* IPv4 as mapped */
	__u32 dst[4];
	__u32 first;  /* as in `struct flow` */
	__u32 v4;     /* it is IPv4 */
	__u32 df;     /* and must not be fragmented */
	struct walk w;
};

inline_always int is_extension(__u32 next)
{
	return next == P_HOPOPTS || next == P_DSTOPTS || next == P_ROUTING || next == P_FRAGMENT;
}

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
	w->extra = 0;
	for (i = 0; i <= MAX_EXTENSIONS; i++) {
		__u32 len, cut = w->piece == FIRST ? R_FRAGMENT : R_TRUNCATED;
		__u8 h[8];
		__u16 frag;

		if (!is_extension(next)) {
			w->proto = next;
			w->off = off;
			return 0;
		}
		if (i == MAX_EXTENSIONS)
			break;
		if (off + 8 > end || load(c, off, h, sizeof h))
			return cut;
		if (next == P_ROUTING && h[3])
			return R_EXTENSION_HEADERS;
		if (next == P_FRAGMENT) {
			frag = (__u16)h[2] << 8 | h[3];
			if (w->quoted) {
				if (frag & 0xfff8)
					return R_FRAGMENT;
			} else if (w->piece == FIRST) {
				/* A fragment of a fragment. */
				return R_FRAGMENT;
			} else if (frag & 0xfff9) {
				w->piece = frag & 0xfff8 ? LATER : FIRST;
				w->stated = h[0];
				w->units = frag >> 3;
				__builtin_memcpy(&w->id, h + 4, 4);
			}
		}
		len = next == P_FRAGMENT ? 8 : ((__u32)h[1] + 1) * 8;
		if (off + len > end)
			return cut;
		if (off + len - start > MAX_WALK)
			return R_EXTENSION_HEADERS;
		w->extra++;
		next = h[0];
		off += len;
		if (w->piece == LATER) {
			w->proto = next;
			w->off = off;
			return 0;
		}
	}
	return R_EXTENSION_HEADERS;
}

/* IPv4 options: 0, or the reason to drop for a source route that is not spent (RFC 7126) or for what cannot be read. */
subprogram int read_options(ctx_t *c, __u32 off, __u32 end)
{
	int i;

	for (i = 0; i < 40; i++) {
		__u8 o[3] = {};

		if (off >= end)
			return 0;
		if (load(c, off, o, 1))
			return R_INTERNAL;
		if (!o[0])
			return 0;
		if (o[0] == 1) {
			off++;
			continue;
		}
		if (off + 2 > end || load(c, off, o, 2) || o[1] < 2 || off + o[1] > end)
			return R_IP_OPTIONS;
		/* Loose and strict source route: the pointer leads beyond the option when nothing is left of it. */
		if ((o[0] == 131 || o[0] == 137) && (o[1] < 3 || load(c, off, o, 3) || o[2] <= o[1]))
			return R_IP_OPTIONS;
		off += o[1];
	}
	return 0;
}
