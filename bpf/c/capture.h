/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Frames of one VIP, as they came in and as they are sent: in the second build of the program alone, which sits in the slots
 * while somebody captures. */
#pragma once
#include "observe.h"
#include "parse.h"

/* Set before the program is loaded. */
const volatile struct capture_filter weir_capture = {};

/* The loader gives it its size and shares it between the interfaces. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} captures SEC(".maps");

inline_always int is_vip(const __u32 *addr)
{
	const volatile __u32 *vip = (const volatile __u32 *)weir_capture.addr;

	return addr[0] == vip[0] && addr[1] == vip[1] && addr[2] == vip[2] && addr[3] == vip[3];
}

/* Whether a TCP or UDP header has the port; every other packet passes, since only the whole path knows whose it is. */
inline_always int has_port(ctx_t *c, __u32 proto, __u32 off, int side)
{
	__u16 want = *(const volatile __u16 *)weir_capture.port, ports[2];

	if (!want || (proto != P_TCP && proto != P_UDP) || load(c, off, ports, sizeof ports))
		return 1;
	return ports[side] == want;
}

/* `side` 1: to the VIP; 0: from it. */
inline_always int wanted4(ctx_t *c, __u32 off, int side)
{
	__u32 addr[4] = { 0, 0, bpf_htonl(0xffff) };
	__u8 h[20];

	if (load(c, off, h, sizeof h) || h[0] >> 4 != 4)
		return 0;
	__builtin_memcpy(&addr[3], side ? h + 16 : h + 12, 4);
	if (!is_vip(addr))
		return 0;
	/* Later fragments have no ports. */
	return (h[6] & 0x1f) | h[7] || has_port(c, h[9], off + (h[0] & 15) * 4, side);
}

inline_always int wanted6(ctx_t *c, __u32 off, int side)
{
	struct ip6 ip;

	if (load(c, off, &ip, sizeof ip) || (ip.flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return 0;
	if (is_vip(side ? ip.dst : ip.src))
		return has_port(c, ip.next, off + 40, side);
	return 0;
}

/* A packet to the VIP, or a reply of it in an outer header. */
subprogram int capture_wanted(ctx_t *c)
{
	__u32 l2 = ETH_HLEN, next = 0;
	__u8 eth[ETH_HLEN], tag[4];
	__u16 type;
	int i;

	if (load(c, 0, eth, sizeof eth))
		return 0;
	type = (__u16)eth[12] << 8 | eth[13];
	for (i = 0; i < 2; i++) {
		if (type != ETH_VLAN && type != ETH_QINQ)
			break;
		if (load(c, l2, tag, sizeof tag))
			return 0;
		type = (__u16)tag[2] << 8 | tag[3];
		l2 += 4;
	}
	if (type == ETH_P_IP)
		return wanted4(c, l2, 1);
	if (type != ETH_P_IPV6)
		return 0;
	if (wanted6(c, l2, 1))
		return 1;
	if (load(c, l2 + 6, &next, 1))
		return 0;
	if (next == 41)
		return wanted6(c, l2 + 40, 0);
	return next == 4 && wanted4(c, l2 + 40, 0);
}

/* Ring buffer items have sizes that the verifier knows: three of them. */
#define CAPTURE(SIZE) \
	do { \
		struct { \
			struct capture_head head; \
			__u8 bytes[SIZE]; \
		} *e = bpf_ringbuf_reserve(&captures, sizeof *e, 0); \
\
		if (!e) \
			return -1; \
		__builtin_memcpy(&e->head, head, sizeof e->head); \
		/* Older verifiers do not see that what is not 0 is 1 at least. */ \
		last = take - 1; \
		KEEP(last); \
		if (take && (last >= (SIZE) || load(c, 0, e->bytes, last + 1))) { \
			bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP); \
			return -1; \
		} \
		bpf_ringbuf_submit(e, 0); \
		return 0; \
	} while (0)

subprogram int capture_frame(ctx_t *c, struct capture_head *head)
{
	__u32 take, last;

	if (!head)
		return -1;
	take = head->captured;
	KEEP(take);
	if (take <= 160)
		CAPTURE(160);
	if (take <= 1632)
		CAPTURE(1632);
	if (take <= CAPTURE_BYTES)
		CAPTURE(CAPTURE_BYTES);
	return -1;
}

inline_always void capture(ctx_t *c, struct capture_head *head)
{
	struct capture_cpu *cpu;

	head->length = frame_len(c);
	head->captured = head->kind == CAPTURE_ENDED ? 0 : head->length;
	if (head->captured > CAPTURE_BYTES)
		head->captured = CAPTURE_BYTES;
	if (!capture_frame(c, head))
		return;
	cpu = find_capture_cpu();
	if (cpu)
		cpu->lost++;
}

/* The frame as it came in. Returns its id, 0 when it is not captured. */
subprogram __u64 capture_received(ctx_t *c)
{
	struct capture_head head = { .kind = CAPTURE_RECEIVED };
	__u64 now = bpf_ktime_get_ns();

	/* Nobody reads any more: the daemon has gone, and left this program in the slot. */
	if (now > weir_capture.until_ns || !capture_wanted(c))
		return 0;
	head.at_ns = now;
	head.id = now << 8 | (bpf_get_smp_processor_id() & 0xff);
	head.ifindex = ingress(c);
	capture(c, &head);
	return head.id;
}

/* What became of it: the frame that is sent, or the reason alone. */
subprogram int capture_outcome(ctx_t *c, __u64 id, int r)
{
	struct capture_head head = { .id = id, .reason = (__u32)r >> 8 };
	struct capture_cpu *cpu = find_capture_cpu();

	head.ifindex = ingress(c);
	/* Or the compiler picks between two addresses, one of them in the context, which the verifier refuses. */
	KEEP(head.ifindex);
	if ((r & 0xff) == XDP_REDIRECT && cpu)
		head.ifindex = cpu->redirect;
	head.at_ns = bpf_ktime_get_ns();
	head.kind = (r & 0xff) == XDP_TX || (r & 0xff) == XDP_REDIRECT ? CAPTURE_SENT : CAPTURE_ENDED;
	capture(c, &head);
	return 0;
}
