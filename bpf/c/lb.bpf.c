// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// The load balancer's slot program, and the heartbeat that the daemon runs.
#include "env_bpf.h"
#include "lb.h"
#include "drops.h"
#ifdef WEIR_CAPTURE
#include "capture.h"
#endif
#include "reply.h"

SEC("xdp.frags")
int lb(struct xdp_md *ctx)
{
#ifdef WEIR_CAPTURE
	__u64 id = capture_received(ctx);
#endif
	int r = decide(ctx);

	/* What the fabric brings into the block may be a reply on its way out. */
	if (r == OUT(LEFT, R_NOT_VIP))
		r = trace_end(ctx, edge_reply(ctx, r));
#ifdef WEIR_CAPTURE
	if (id)
		capture_outcome(ctx, id, r);
#endif
	count_reason((__u32)r >> 8);
	if ((r & 0xff) > XDP_DROP)
		return r & 0xff;
	if ((r & 0xff) == XDP_DROP) {
		sample_drop(ctx, (__u32)r >> 8);
		return XDP_DROP;
	}
	/* Not ours: the next owner of this uplink, then the stack. */
	bpf_tail_call(ctx, &slots, 1);
	bpf_tail_call(ctx, &slots, 2);
	bpf_tail_call(ctx, &slots, 3);
	bpf_tail_call(ctx, &slots, 4);
	bpf_tail_call(ctx, &slots, 5);
	bpf_tail_call(ctx, &slots, 6);
	bpf_tail_call(ctx, &slots, 7);
	return XDP_PASS;
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
const struct trace btf_trace = {};
const struct drop_event btf_drop_event = {};
#ifdef WEIR_CAPTURE
const struct capture_head btf_capture_head = {};
#endif

char _license[] SEC("license") = "GPL";
