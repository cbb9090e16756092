/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What the packet path asks of its surroundings, on this machine: the twin of `env_bpf.h`, for tests and fuzzing. */
#pragma once
#include <stddef.h>
#include <string.h>
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include "abi.h"

#define inline_always static inline __attribute__((always_inline))
#define subprogram static __attribute__((noinline))
#define unlikely(x) __builtin_expect(!!(x), 0)
/* Has a value worked out here and held in one register, not later from many. */
#define KEEP(x) ((void)(x))
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define bpf_htons htons
#define bpf_ntohs ntohs
#define bpf_htonl htonl
#define bpf_ntohl ntohl

enum xdp_action { XDP_ABORTED = 0, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

/* The tables of one run; mirrors `native::World` in bpf/src/native.rs. */
struct world {
	struct config cfg;
	const struct vip_key *keys;
	__u32 *indices;
	__u64 *words;
	struct ring_block *blocks;
	struct backend *backends;
	struct next_hop *hops;
	struct counter *vip_counters;
	struct counter *backend_counters;
	__u64 *reasons;
	struct shared *state;
	struct bucket *bucket;
	struct fragment_key *fragment_keys;
	struct fragment *fragments;
	__u32 n_keys, n_words, n_blocks, n_backends, n_hops, n_fragments, max_fragments;
	__u64 jiffies, now_ns;
	struct next_hop fib;
	__u32 fib_known;
	/* What the fabric said of a path in this run; 0 when it said nothing. */
	__u8 learned_sid[16];
	__u32 learned_mtu;
	/* Frame: `buf` has HEADROOM bytes before and some after. */
	__u32 ingress, redirect;
	__u8 *data, *end, *buf, *limit;
};
typedef struct world ctx_t;

static __thread ctx_t *this_world;
#define weir_cfg (this_world->cfg)

inline_always void *data(ctx_t *c) { return c->data; }
/* No frame here has metadata. */
inline_always void *metadata(ctx_t *c) { return c->data; }
inline_always void *data_end(ctx_t *c) { return c->end; }
inline_always __u32 ingress(ctx_t *c) { return c->ingress; }
inline_always __u32 frame_len(ctx_t *c) { return c->end - c->data; }
inline_always long grow_head(ctx_t *c, int by)
{
	__u8 *to = c->data - by;

	if (to < c->buf || to + ETH_HLEN > c->end)
		return -1;
	c->data = to;
	return 0;
}
inline_always long move_tail(ctx_t *c, int by)
{
	__u8 *to = c->end + by;

	if (to < c->data + ETH_HLEN || to > c->limit)
		return -1;
	c->end = to;
	return 0;
}
inline_always long load(ctx_t *c, __u32 off, void *to, __u32 len)
{
	if ((__u64)off + len > frame_len(c))
		return -1;
	memcpy(to, c->data + off, len);
	return 0;
}
inline_always __u64 jiffies(void) { return this_world->jiffies; }
inline_always __u64 now_ns(void) { return this_world->now_ns; }
inline_always int redirect(__u32 ifindex)
{
	this_world->redirect = ifindex;
	return XDP_REDIRECT;
}
inline_always __s64 csum_add(const void *from, __u32 len, __u32 seed)
{
	__u64 sum = seed;

	for (__u32 i = 0; i < len; i += 4) {
		__u32 w;

		memcpy(&w, (const __u8 *)from + i, 4);
		sum += w;
	}
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return sum;
}
inline_always __u32 *find_vip(const void *key)
{
	for (__u32 i = 0; i < this_world->n_keys; i++)
		if (!memcmp(key, &this_world->keys[i], sizeof *this_world->keys))
			return &this_world->indices[i];
	return NULL;
}
inline_always __u64 *find_word(__u32 i) { return i < this_world->n_words ? &this_world->words[i] : NULL; }
inline_always struct ring_block *find_block(__u32 i) { return i < this_world->n_blocks ? &this_world->blocks[i] : NULL; }
inline_always struct backend *find_backend(__u32 i) { return i < this_world->n_backends ? &this_world->backends[i] : NULL; }
inline_always struct next_hop *find_hop(__u32 i) { return i < this_world->n_hops ? &this_world->hops[i] : NULL; }
inline_always struct shared *find_state(void) { return this_world->state; }
inline_always struct bucket *find_bucket(void) { return this_world->bucket; }
inline_always struct fragment *find_fragment(const struct fragment_key *k)
{
	for (__u32 i = 0; i < this_world->n_fragments; i++)
		if (!memcmp(k, &this_world->fragment_keys[i], sizeof *k))
			return &this_world->fragments[i];
	return NULL;
}
/* Never forgets: whoever runs it gives room for one more. */
inline_always void put_fragment(const struct fragment_key *k, const struct fragment *v)
{
	struct fragment *old = find_fragment(k);

	if (old) {
		*old = *v;
	} else if (this_world->n_fragments < this_world->max_fragments) {
		this_world->fragment_keys[this_world->n_fragments] = *k;
		this_world->fragments[this_world->n_fragments++] = *v;
	}
}
inline_always struct counter *find_vip_counter(__u32 i) { return i < this_world->n_words ? &this_world->vip_counters[i] : NULL; }
inline_always struct counter *find_backend_counter(__u32 i)
{
	return i < this_world->n_backends ? &this_world->backend_counters[i] : NULL;
}
inline_always void learn(const void *sid, __u32 mtu)
{
	memcpy(this_world->learned_sid, sid, 16);
	this_world->learned_mtu = mtu;
}
inline_always void count_reason(__u32 r)
{
	if (r < R_COUNT)
		this_world->reasons[r]++;
}
subprogram int fib_hop(ctx_t *c, const struct backend *b, struct next_hop *hop)
{
	(void)b;
	if (!c->fib_known)
		return -1;
	*hop = c->fib;
	return 0;
}
