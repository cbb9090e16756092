// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// The load balancer's slot program, and the heartbeat that the daemon runs.
#include "env_bpf.h"
#include "lb.h"
#include "reply.h"

SEC("xdp.frags")
int lb(struct xdp_md *ctx)
{
	int r = decide(ctx);

	if ((r & 0xff) != LEFT)
		goto ours;
	/* What the fabric brings into the block may be a reply on its way out. */
	if (r == OUT(LEFT, R_NOT_VIP)) {
		r = edge_reply(ctx, r);
		if ((r & 0xff) != LEFT)
			goto ours;
	}
	count_reason((__u32)r >> 8);
	/* Not ours: the next owner of this uplink, then the stack. */
	bpf_tail_call(ctx, &slots, 1);
	bpf_tail_call(ctx, &slots, 2);
	bpf_tail_call(ctx, &slots, 3);
	bpf_tail_call(ctx, &slots, 4);
	bpf_tail_call(ctx, &slots, 5);
	bpf_tail_call(ctx, &slots, 6);
	bpf_tail_call(ctx, &slots, 7);
	return XDP_PASS;
ours:
	count_reason((__u32)r >> 8);
	return r & 0xff;
}

/* Run by the daemon every second: only the kernel knows its jiffies. */
SEC("xdp.frags")
int beat(struct xdp_md *ctx)
{
	struct shared *s = find_state();

	(void)ctx;
	if (!s)
		return XDP_ABORTED;
	s->heartbeat = bpf_jiffies64();
	return XDP_DROP;
}

/* Kept so that the compiler emits their BTF for the layout test. */
const enum reason btf_reason = R_COUNT;
const enum affinity btf_affinity = AFFINITY_NONE;

char _license[] SEC("license") = "GPL";
