/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Sampled drops, written to a ring buffer that the daemon reads. Off the path of every packet that is sent. */
#pragma once
#include "observe.h"

inline_always int fill_drop(ctx_t *c, struct drop_event *e, __u32 length)
{
	if (length >= DROP_BYTES)
		return load(c, 0, e->bytes, DROP_BYTES);
	KEEP(length);
	/* The verifier wants to see that some bytes are asked for. */
	if (length - 1 >= DROP_BYTES)
		return -1;
	return load(c, 0, e->bytes, length);
}

subprogram int sample_drop(ctx_t *c, __u32 reason)
{
	struct drop_event *e;
	struct sampler *s;

	if (!weir_watch.drop_samples || reason == R_SELF_TEST || reason == R_FABRIC_PTB)
		return 0;
	s = bpf_map_lookup_elem(&samplers, &reason);
	if (!s)
		return 0;
	if (!spend(&s->bucket, weir_watch.drop_samples, now_ns())) {
		s->unsampled++;
		return 0;
	}
	e = bpf_ringbuf_reserve(&events, sizeof *e, 0);
	if (!e) {
		s->lost++;
		return 0;
	}
	e->at_ns = s->bucket.last_ns;
	e->reason = reason;
	e->ifindex = ingress(c);
	e->length = frame_len(c);
	e->unsampled = s->unsampled;
	if (fill_drop(c, e, e->length)) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return 0;
	}
	s->unsampled = 0;
	bpf_ringbuf_submit(e, 0);
	return 0;
}
