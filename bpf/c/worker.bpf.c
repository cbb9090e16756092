// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// The worker's programs: `decap` in a slot of the fabric interface's root, `deliver` behind it, `reply` at each endpoint.
#include "worker_env_bpf.h"
#include "worker_reply.h"

SEC("xdp.frags")
int decap(struct xdp_md *ctx)
{
	int r = decapsulate(ctx);

	count_reason((__u32)r >> 8);
	if ((r & 0xff) != LEFT)
		return r & 0xff;
	/* Not ours: the next owner of this interface, then the stack. */
	bpf_tail_call(ctx, &slots, 3);
	bpf_tail_call(ctx, &slots, 4);
	bpf_tail_call(ctx, &slots, 5);
	bpf_tail_call(ctx, &slots, 6);
	bpf_tail_call(ctx, &slots, 7);
	return XDP_PASS;
}

SEC("classifier")
int deliver(struct __sk_buff *ctx)
{
	return deliver_frame(ctx);
}

SEC("classifier")
int from_endpoint(struct __sk_buff *ctx)
{
	int r = reply(ctx);

	count_reason((__u32)r >> 8);
	return (r & 0xff) == W_PASS ? TCX_NEXT : r & 0xff;
}

/* Kept so that the compiler emits their BTF for the layout test. */
const enum w_reason btf_reason = WR_COUNT;
const enum w_kind btf_kind = W_KIND_VETH;
const enum w_reply btf_reply = W_REPLY_DIRECT;
const enum w_flag btf_flag = W_FLAG_NONE;
const struct w_mark btf_mark = {};

char _license[] SEC("license") = "GPL";
