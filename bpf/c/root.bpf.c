// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// The ownerless root of an interface: it runs the first slot that is filled. Frozen: other programs' owners rely on it.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ROOT_SLOTS 8

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ROOT_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} slots SEC(".maps");

SEC("xdp.frags")
int root(struct xdp_md *ctx)
{
	/* A tail call into an empty slot falls through; a program that does not claim the packet calls on from its own slot. */
	bpf_tail_call(ctx, &slots, 0);
	bpf_tail_call(ctx, &slots, 1);
	bpf_tail_call(ctx, &slots, 2);
	bpf_tail_call(ctx, &slots, 3);
	bpf_tail_call(ctx, &slots, 4);
	bpf_tail_call(ctx, &slots, 5);
	bpf_tail_call(ctx, &slots, 6);
	bpf_tail_call(ctx, &slots, 7);
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
