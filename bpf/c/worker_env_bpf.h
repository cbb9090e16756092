/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What the worker's path asks of its surroundings, in the kernel. `worker_env_native.h` is its twin for the XDP half. */
#pragma once
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "worker_abi.h"

#define inline_always static __always_inline
#define subprogram static __noinline
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

typedef struct xdp_md frame_t;
typedef struct __sk_buff skb_t;

/* Set before the programs are loaded. */
const volatile struct w_config worker_cfg = {};

#define MAP(NAME, TYPE, KEY, VALUE, FLAGS, ENTRIES) \
	struct { \
		__uint(type, TYPE); \
		__uint(max_entries, ENTRIES); \
		__uint(map_flags, FLAGS); \
		__type(key, KEY); \
		__type(value, VALUE); \
	} NAME SEC(".maps")

/* Sizes here are those of a small lab; the loader sets the configured limits. */
MAP(w_sids, BPF_MAP_TYPE_HASH, struct w_sid_key, __u32, 0, 128);
MAP(w_sources, BPF_MAP_TYPE_HASH, struct w_source_key, __u32, 0, 128);
MAP(w_services, BPF_MAP_TYPE_HASH, struct w_port_key, __u32, 0, 128);
MAP(w_ports, BPF_MAP_TYPE_HASH, __u32, __u32, 0, 64);
MAP(w_bindings, BPF_MAP_TYPE_ARRAY, __u32, struct w_binding, BPF_F_MMAPABLE, 64);
MAP(w_endpoints, BPF_MAP_TYPE_ARRAY, __u32, struct w_endpoint, BPF_F_MMAPABLE, 64);
MAP(w_params, BPF_MAP_TYPE_ARRAY, __u32, struct w_params, BPF_F_MMAPABLE, 1);
MAP(w_in, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct w_counter, 0, 64);
MAP(w_out, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct w_counter, 0, 64);
MAP(w_reasons, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, 0, WR_COUNT);
MAP(w_buckets, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct w_bucket, 0, 1);
/* For user space alone: what a binding's index stands for. */
MAP(w_meta, BPF_MAP_TYPE_ARRAY, __u32, struct w_meta, 0, 64);
/* The interface's slots, made by whoever loaded its root program. */
MAP(slots, BPF_MAP_TYPE_PROG_ARRAY, __u32, __u32, 0, 8);

inline_always void *data(frame_t *c) { return (void *)(long)c->data; }
inline_always void *data_end(frame_t *c) { return (void *)(long)c->data_end; }
inline_always __u32 frame_len(frame_t *c) { return bpf_xdp_get_buff_len(c); }
inline_always long shrink_head(frame_t *c, int by) { return bpf_xdp_adjust_head(c, by); }
inline_always long mark_frame(frame_t *c, __u32 endpoint)
{
	struct w_mark *m;

	if (bpf_xdp_adjust_meta(c, -(int)sizeof *m))
		return -1;
	m = (void *)(long)c->data_meta;
	if ((void *)(m + 1) > (void *)(long)c->data)
		return -1;
	m->mark = W_MARK;
	m->endpoint = endpoint;
	return 0;
}
inline_always long load(frame_t *c, __u32 off, void *to, __u32 len) { return bpf_xdp_load_bytes(c, off, to, len); }
inline_always long store(frame_t *c, __u32 off, void *from, __u32 len) { return bpf_xdp_store_bytes(c, off, from, len); }

inline_always __u32 *find_sid(const struct w_sid_key *k) { return bpf_map_lookup_elem(&w_sids, k); }
inline_always __u32 *find_source(const struct w_source_key *k) { return bpf_map_lookup_elem(&w_sources, k); }
inline_always __u32 *find_service(const struct w_port_key *k) { return bpf_map_lookup_elem(&w_services, k); }
inline_always __u32 *find_port(__u32 ifindex) { return bpf_map_lookup_elem(&w_ports, &ifindex); }
inline_always struct w_binding *find_binding(__u32 i) { return bpf_map_lookup_elem(&w_bindings, &i); }
inline_always struct w_endpoint *find_endpoint(__u32 i) { return bpf_map_lookup_elem(&w_endpoints, &i); }
inline_always struct w_params *find_params(void) { __u32 z = 0; return bpf_map_lookup_elem(&w_params, &z); }
inline_always struct w_bucket *find_bucket(void) { __u32 z = 0; return bpf_map_lookup_elem(&w_buckets, &z); }
inline_always struct w_counter *find_in(__u32 i) { return bpf_map_lookup_elem(&w_in, &i); }
inline_always struct w_counter *find_out(__u32 i) { return bpf_map_lookup_elem(&w_out, &i); }
inline_always void count_reason(__u32 r)
{
	__u64 *n = bpf_map_lookup_elem(&w_reasons, &r);

	if (n)
		*n += 1;
}
