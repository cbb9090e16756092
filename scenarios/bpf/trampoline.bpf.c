// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// Runs a subject on a fresh header again and again: a repeated test run alone would hand it the frame it has just encapsulated.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

/* Packets of one run. The kernel tells whole nanoseconds a run, so this is also the resolution: 1/16 ns. */
#define PACKETS 16
#define HEADER 74

/* The header as words, cut where a program's loads are cut, so that a load is fed from the store before it as it would
 * be from a cache line that the NIC has filled. */
struct setup {
	__u64 macs;       /* bytes 0 to 8 */
	__u64 ip;         /* 14: IPv6: version to hop limit; IPv4: version to fragment offset */
	__u64 source[2];  /* IPv6: 22; IPv4: the second word's high half is 26, the first word 38 */
	__u64 target[2];  /* IPv6: 38; IPv4: the second word's high half is 30, the first word 46 */
	__u64 window;     /* 62; IPv4: 54 */
	__u32 macs_end;   /* 8 */
	__u32 ports;      /* 54; IPv4: 34 */
	__u32 sequence;   /* 58; IPv4: 22: time to live, protocol, checksum */
	__u32 options;    /* 70; IPv4: 62 */
	__u32 type;       /* 12, two bytes */
	__u32 length;     /* bytes of the frame */
	__u32 flow_mask;  /* flows less one; flows are a power of two */
	__u32 vip_mask;   /* VIPs less one; a power of two; they count in the address's last four bytes */
	__u32 verdict;    /* what the subject must return */
	__u32 ipv4;       /* whether the packets are IPv4's */
};
const volatile struct setup setup = {};

struct outcome {
	__u64 packets;
	__u64 wrong_verdict;
	__u64 unmoved;
};
struct outcome outcome = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} subject SEC(".maps");

static __always_inline int lay_header(struct xdp_md *ctx, __u32 flow)
{
	void *d = (void *)(long)ctx->data;
	__u64 source, target;
	__u32 ports;

	if (d + HEADER > (void *)(long)ctx->data_end)
		return -1;
	*(__u64 *)d = setup.macs;
	*(__u32 *)(d + 8) = setup.macs_end;
	*(__u16 *)(d + 12) = setup.type;
	*(__u64 *)(d + 14) = setup.ip;
	/* The flow's number stands in the client's last four bytes and in its port, so that VIPs take turns too. */
	source = setup.source[1] ^ (__u64)flow << 32;
	target = setup.target[1] ^ (__u64)bpf_htonl(flow & setup.vip_mask) << 32;
	ports = setup.ports ^ (flow & 0xffff);
	if (setup.ipv4) {
		*(__u32 *)(d + 22) = setup.sequence;
		*(__u32 *)(d + 26) = source >> 32;
		*(__u32 *)(d + 30) = target >> 32;
		*(__u32 *)(d + 34) = ports;
		*(__u64 *)(d + 38) = setup.source[0];
		*(__u64 *)(d + 46) = setup.target[0];
		*(__u64 *)(d + 54) = setup.window;
		*(__u32 *)(d + 62) = setup.options;
		return 0;
	}
	*(__u64 *)(d + 22) = setup.source[0];
	*(__u64 *)(d + 30) = source;
	*(__u64 *)(d + 38) = setup.target[0];
	*(__u64 *)(d + 46) = target;
	*(__u32 *)(d + 54) = ports;
	*(__u32 *)(d + 58) = setup.sequence;
	*(__u64 *)(d + 62) = setup.window;
	*(__u32 *)(d + 70) = setup.options;
	return 0;
}

/* A tail call from inside a subprogram comes back to the subprogram's caller. */
static __noinline int call_subject(struct xdp_md *ctx)
{
	int verdict = XDP_ABORTED;

	bpf_tail_call(ctx, &subject, 0);
	/* The compiler must not conclude that this is always XDP_ABORTED. */
	asm volatile("" : "+r"(verdict));
	return verdict;
}

SEC("xdp.frags")
int bench(struct xdp_md *ctx)
{
	int i, verdict = XDP_ABORTED;

	for (i = 0; i < PACKETS; i++) {
		long length;
		int moved;

		/* An odd factor makes the counter a permutation: each flow comes once in as many packets as there are flows. */
		if (lay_header(ctx, ((__u32)outcome.packets * 0x9e3779b1u) & setup.flow_mask))
			return XDP_ABORTED;
		verdict = call_subject(ctx);
		outcome.packets++;
		if (verdict != (int)setup.verdict)
			outcome.wrong_verdict++;
		length = (long)ctx->data_end - (long)ctx->data;
		asm volatile("" : "+r"(length));
		moved = (int)length - (int)setup.length;
		if (moved && bpf_xdp_adjust_head(ctx, moved))
			outcome.unmoved++;
	}
	return verdict;
}

char _license[] SEC("license") = "GPL";
