/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What the packet path asks of its surroundings, in the kernel: packet access, maps, clocks. `env_native.h` is its twin. */
#pragma once
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "abi.h"

#define inline_always static __always_inline
#define subprogram static __noinline
#define unlikely(x) __builtin_expect(!!(x), 0)
/* Has a value worked out here and held in one register, not later from many. */
#define KEEP(x) asm volatile("" : "+r"(x))
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))

typedef struct xdp_md ctx_t;

/* Set before the program is loaded; one copy an interface. */
const volatile struct config weir_cfg = {};
const volatile struct watch weir_watch = {};

#define MAP(NAME, TYPE, KEY, VALUE, FLAGS, ENTRIES) \
	struct { \
		__uint(type, TYPE); \
		__uint(max_entries, ENTRIES); \
		__uint(map_flags, FLAGS); \
		__type(key, KEY); \
		__type(value, VALUE); \
	} NAME SEC(".maps")

/* Sizes here are those of a small lab; the loader sets the configured limits. */
MAP(vip_index, BPF_MAP_TYPE_HASH, struct vip_key, __u32, 0, 256);
MAP(vip_state, BPF_MAP_TYPE_ARRAY, __u32, __u64, BPF_F_MMAPABLE, 256);
MAP(rings, BPF_MAP_TYPE_ARRAY, __u32, struct ring_block, BPF_F_MMAPABLE, 8192);
MAP(backends, BPF_MAP_TYPE_ARRAY, __u32, struct backend, BPF_F_MMAPABLE, 1024);
MAP(nexthops, BPF_MAP_TYPE_ARRAY, __u32, struct next_hop, BPF_F_MMAPABLE, 256);
MAP(state, BPF_MAP_TYPE_ARRAY, __u32, struct shared, BPF_F_MMAPABLE, 1);
MAP(vip_counters, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, 0, 256);
MAP(backend_counters, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct counter, 0, 1024);
MAP(reasons, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, 0, R_COUNT);
MAP(buckets, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct bucket, 0, 1);
MAP(samplers, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct sampler, 0, R_COUNT);
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_RING);
} events SEC(".maps");
/* What first fragments told of the rest of their datagrams. */
MAP(fragments, BPF_MAP_TYPE_LRU_HASH, struct fragment_key, struct fragment, 0, 1024);
/* What the fabric's routers say of paths, for the daemon to judge. */
MAP(learned, BPF_MAP_TYPE_LRU_HASH, struct sid, struct learned, 0, LEARNED_ENTRIES);
/* For user space alone: what the numbers above stand for, so that a restarted daemon and `weir show` can tell,
 * and totals carried over from maps of another layout (adding to a per-CPU counter in use would lose counts). */
MAP(vip_meta, BPF_MAP_TYPE_ARRAY, __u32, struct vip_meta, 0, 256);
MAP(ring_meta, BPF_MAP_TYPE_HASH, __u32, struct ring_meta, BPF_F_NO_PREALLOC, 256);
MAP(backend_meta, BPF_MAP_TYPE_ARRAY, __u32, struct backend_meta, 0, 1024);
MAP(vip_carried, BPF_MAP_TYPE_ARRAY, __u32, struct counter, 0, 256);
MAP(backend_carried, BPF_MAP_TYPE_ARRAY, __u32, struct counter, 0, 1024);
MAP(reason_carried, BPF_MAP_TYPE_ARRAY, __u32, __u64, 0, R_COUNT);
MAP(names, BPF_MAP_TYPE_HASH, __u64, struct name, BPF_F_NO_PREALLOC, 4096);
/* The interface's slots, made by whoever loaded its root program. */
MAP(slots, BPF_MAP_TYPE_PROG_ARRAY, __u32, __u32, 0, ROOT_SLOTS);

inline_always void *data(ctx_t *c) { return (void *)(long)c->data; }
inline_always void *metadata(ctx_t *c) { return (void *)(long)c->data_meta; }
inline_always void *data_end(ctx_t *c) { return (void *)(long)c->data_end; }
inline_always __u32 ingress(ctx_t *c) { return c->ingress_ifindex; }
/* Bytes of the frame, those in fragments of a multi-buffer frame included. */
inline_always __u32 frame_len(ctx_t *c) { return bpf_xdp_get_buff_len(c); }
inline_always long grow_head(ctx_t *c, int by) { return bpf_xdp_adjust_head(c, -by); }
inline_always long move_tail(ctx_t *c, int by) { return bpf_xdp_adjust_tail(c, by); }
inline_always long load(ctx_t *c, __u32 off, void *to, __u32 len) { return bpf_xdp_load_bytes(c, off, to, len); }
inline_always __u64 jiffies(void) { return bpf_jiffies64(); }
inline_always __u64 now_ns(void) { return bpf_ktime_get_coarse_ns(); }
#ifdef WEIR_CAPTURE
MAP(capture_cpu, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct capture_cpu, 0, 1);
inline_always struct capture_cpu *find_capture_cpu(void) { __u32 z = 0; return bpf_map_lookup_elem(&capture_cpu, &z); }
inline_always int redirect(__u32 ifindex)
{
	struct capture_cpu *cpu = find_capture_cpu();

	if (cpu)
		cpu->redirect = ifindex;
	return bpf_redirect(ifindex, 0);
}
#else
inline_always int redirect(__u32 ifindex) { return bpf_redirect(ifindex, 0); }
#endif
inline_always __s64 csum_add(const void *from, __u32 len, __u32 seed)
{
	return bpf_csum_diff(0, 0, (__be32 *)from, len, seed);
}
inline_always __u32 *find_vip(const void *key) { return bpf_map_lookup_elem(&vip_index, key); }
inline_always __u64 *find_word(__u32 i) { return bpf_map_lookup_elem(&vip_state, &i); }
inline_always struct ring_block *find_block(__u32 i) { return bpf_map_lookup_elem(&rings, &i); }
inline_always struct backend *find_backend(__u32 i) { return bpf_map_lookup_elem(&backends, &i); }
inline_always struct next_hop *find_hop(__u32 i) { return bpf_map_lookup_elem(&nexthops, &i); }
inline_always struct shared *find_state(void) { __u32 z = 0; return bpf_map_lookup_elem(&state, &z); }
inline_always struct bucket *find_bucket(void) { __u32 z = 0; return bpf_map_lookup_elem(&buckets, &z); }
inline_always struct fragment *find_fragment(const struct fragment_key *k) { return bpf_map_lookup_elem(&fragments, k); }
inline_always void put_fragment(const struct fragment_key *k, const struct fragment *v)
{
	bpf_map_update_elem(&fragments, k, v, BPF_ANY);
}
inline_always struct counter *find_vip_counter(__u32 i) { return bpf_map_lookup_elem(&vip_counters, &i); }
inline_always struct counter *find_backend_counter(__u32 i) { return bpf_map_lookup_elem(&backend_counters, &i); }
inline_always void learn(const void *sid, __u32 mtu)
{
	struct learned l = { .at_ns = bpf_ktime_get_coarse_ns(), .mtu = mtu };

	bpf_map_update_elem(&learned, sid, &l, BPF_ANY);
}
inline_always void count_reason(__u32 r)
{
	__u64 *n = bpf_map_lookup_elem(&reasons, &r);
	if (n)
		*n += 1;
}

#ifndef AF_INET6
#define AF_INET6 10
#endif
/* The kernel's own answer for a SID, for the time when nobody keeps `nexthops` fresh. 0: `hop` is filled. */
subprogram int fib_hop(ctx_t *c, const struct backend *b, struct next_hop *hop)
{
	struct bpf_fib_lookup f = { .family = AF_INET6, .ifindex = c->ingress_ifindex };

	if (!b || !hop)
		return -1;
	__builtin_memcpy(f.ipv6_dst, b->sid, 16);
	if (bpf_fib_lookup(c, &f, sizeof f, 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return -1;
	__builtin_memcpy(hop->macs, f.dmac, 6);
	__builtin_memcpy(hop->macs + 6, f.smac, 6);
	hop->ifindex = f.ifindex;
	hop->mtu = f.mtu_result;
	return 0;
}
