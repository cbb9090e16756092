/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What the worker's XDP half asks of its surroundings, on this machine: the twin of `worker_env_bpf.h`, for tests. */
#pragma once
#include <stddef.h>
#include <string.h>
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include "worker_abi.h"

#define inline_always static inline __attribute__((always_inline))
#define subprogram static __attribute__((noinline))
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define bpf_htons htons
#define bpf_ntohs ntohs
#define bpf_htonl htonl
#define bpf_ntohl ntohl

enum xdp_action { XDP_ABORTED = 0, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

/* The tables of one run; mirrors `native_worker::World` in bpf/src/native_worker.rs. */
struct w_world {
	struct w_config cfg;
	struct w_params params;
	const struct w_sid_key *keys;
	__u32 *indices;
	struct w_binding *bindings;
	struct w_endpoint *endpoints;
	struct w_counter *in;
	__u64 *reasons;
	const struct w_port_key *services;
	__u32 *service_indices;
	__u32 n_keys, n_bindings, n_endpoints, n_services;
	__u32 marked;
	__u8 *data, *end, *buf;
};
typedef struct w_world frame_t;

static __thread frame_t *this_world;
#define worker_cfg (this_world->cfg)

inline_always void *data(frame_t *c) { return c->data; }
inline_always void *data_end(frame_t *c) { return c->end; }
inline_always __u32 frame_len(frame_t *c) { return c->end - c->data; }
inline_always long shrink_head(frame_t *c, int by)
{
	if (c->data + by + ETH_HLEN > c->end)
		return -1;
	c->data += by;
	return 0;
}
inline_always long mark_frame(frame_t *c, __u32 endpoint)
{
	c->marked = endpoint;
	return 0;
}
inline_always long load(frame_t *c, __u32 off, void *to, __u32 len)
{
	if ((__u64)off + len > frame_len(c))
		return -1;
	memcpy(to, c->data + off, len);
	return 0;
}
inline_always long store(frame_t *c, __u32 off, void *from, __u32 len)
{
	if ((__u64)off + len > frame_len(c))
		return -1;
	memcpy(c->data + off, from, len);
	return 0;
}
inline_always __u32 *find_sid(const struct w_sid_key *k)
{
	for (__u32 i = 0; i < this_world->n_keys; i++)
		if (!memcmp(k, &this_world->keys[i], sizeof *k))
			return &this_world->indices[i];
	return NULL;
}
inline_always __u32 *find_service(const struct w_port_key *k)
{
	for (__u32 i = 0; i < this_world->n_services; i++)
		if (!memcmp(k, &this_world->services[i], sizeof *k))
			return &this_world->service_indices[i];
	return NULL;
}
inline_always struct w_binding *find_binding(__u32 i) { return i < this_world->n_bindings ? &this_world->bindings[i] : NULL; }
inline_always struct w_endpoint *find_endpoint(__u32 i) { return i < this_world->n_endpoints ? &this_world->endpoints[i] : NULL; }
inline_always struct w_params *find_params(void) { return &this_world->params; }
inline_always struct w_counter *find_in(__u32 i) { return i < this_world->n_bindings ? &this_world->in[i] : NULL; }
inline_always void count_reason(__u32 r)
{
	if (r < WR_COUNT)
		this_world->reasons[r]++;
}
