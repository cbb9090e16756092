/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Frames that `weir trace` runs, and token buckets: what the packet path itself needs of being watched. */
#pragma once

#define TOKEN 1000000000ULL

/* Verdict of a step: an XDP action or LEFT, and the reason to count. The actions of packets that are sent are the largest. */
#define LEFT 0
#define OUT(ACTION, REASON) ((ACTION) | (REASON) << 8)
#define DROP(REASON) OUT(XDP_DROP, REASON)

/* The metadata of a traced frame; none has it on the wire. Its results are written there, so that runs share nothing. */
inline_always struct trace *traced(ctx_t *c)
{
	struct trace *t = metadata(c);

	if ((void *)(t + 1) > data(c) || t->magic != TRACE_MAGIC)
		return NULL;
	return t;
}

inline_always void trace_choice(ctx_t *c, __u32 vip, __u32 slot, __u32 backend)
{
	struct trace *t = traced(c);

	if (t) {
		t->vip = vip;
		t->slot = slot;
		t->backend = backend;
	}
}

inline_always void trace_hop(ctx_t *c, __u32 ifindex, __u32 mtu)
{
	struct trace *t = traced(c);

	if (t) {
		t->ifindex = ifindex;
		t->mtu = mtu;
	}
}

/* A frame's verdict. A traced one is left to nobody, and its reason becomes one that nothing counts. */
inline_always int trace_end(ctx_t *c, int r)
{
	struct trace *t = traced(c);

	if (!t)
		return r;
	t->reason = (__u32)r >> 8;
	if ((r & 0xff) == XDP_TX)
		t->ifindex = ingress(c);
	return (r & 0xff) == LEFT ? OUT(XDP_PASS, R_COUNT) : OUT(r & 0xff, R_COUNT);
}

/* Whether `b`, which refills by `rate` a second and holds no more, has a token; `b` is then one poorer. */
inline_always int spend(struct bucket *b, __u32 rate, __u64 now)
{
	__u64 passed = now - b->last_ns, full = rate * TOKEN;

	/* A second refills it whole; the bound also keeps the product in 64 bits. */
	if (!b->last_ns || passed >= TOKEN)
		b->tokens = full;
	else
		b->tokens += passed * rate;
	if (b->tokens > full)
		b->tokens = full;
	b->last_ns = now ? now : 1;
	if (b->tokens < TOKEN)
		return 0;
	b->tokens -= TOKEN;
	return 1;
}
