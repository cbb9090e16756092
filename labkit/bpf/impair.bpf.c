// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A tc program that loses, duplicates, corrupts or hands over chosen packets. What happens to the n-th matching packet is a
// function of the seed and n alone.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Mark of the copies this program makes, so that it lets them by.
#define COPY_MARK 0x6c6b6370
#define ANY 0

// Mirrored by `Config` in src/fault/impair.rs.
struct config {
	__u64 seed;
	__u32 lose;       // chances in 1 << 32
	__u32 duplicate;
	__u32 corrupt;
	__u32 reorder;
	__u64 lose_from;  // matching packets [lose_from, lose_to) are lost whatever the chances
	__u64 lose_to;
	__u16 ethertype;  // host order, or ANY
	__u8 protocol;    // next header of IPv6, protocol of IPv4, or ANY
	__u8 pad;
	__u16 port;       // destination port, host order, or ANY
	__u16 pad2;
};

// Mirrored by `Counts` in src/fault/impair.rs.
struct counts {
	__u64 seen;
	__u64 lost;
	__u64 duplicated;
	__u64 corrupted;
	__u64 reordered;
};

volatile const struct config cfg;
struct counts counts;

// Copies of packets held back, sent by user space after those behind them.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} held SEC(".maps");

#define HELD_MAX 9216
struct held_packet {
	__u32 len;
	__u8 data[HELD_MAX];
};

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
static __always_inline __u64 mix(__u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static __always_inline int matches(struct __sk_buff *skb)
{
	__u16 ethertype = 0;
	__u32 l4 = 0;
	__u8 protocol = 0, ihl = 0;
	__be16 port = 0;

	if (bpf_skb_load_bytes(skb, 12, &ethertype, 2))
		return 0;
	if (cfg.ethertype != ANY && bpf_ntohs(ethertype) != cfg.ethertype)
		return 0;
	if (cfg.protocol == ANY && cfg.port == ANY)
		return 1;
	if (ethertype == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN + 6, &protocol, 1))
			return 0;
		l4 = ETH_HLEN + 40;
	} else if (ethertype == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ihl, 1) || bpf_skb_load_bytes(skb, ETH_HLEN + 9, &protocol, 1))
			return 0;
		l4 = ETH_HLEN + (ihl & 15) * 4;
	} else {
		return 0;
	}
	if (cfg.protocol != ANY && protocol != cfg.protocol)
		return 0;
	if (cfg.port == ANY)
		return 1;
	if (bpf_skb_load_bytes(skb, l4 + 2, &port, 2))
		return 0;
	return bpf_ntohs(port) == cfg.port;
}

static __always_inline int hold(struct __sk_buff *skb)
{
	__u32 len = skb->len;
	struct held_packet *packet;

	if (len < ETH_HLEN || len > HELD_MAX)
		return 0;
	packet = bpf_ringbuf_reserve(&held, sizeof(*packet), 0);
	if (!packet)
		return 0;
	// The verifier wants the bound where it is used.
	asm volatile("" : "+r"(len));
	len &= 0x3fff;
	if (len == 0 || len > HELD_MAX || bpf_skb_load_bytes(skb, 0, packet->data, len)) {
		bpf_ringbuf_discard(packet, 0);
		return 0;
	}
	packet->len = len;
	bpf_ringbuf_submit(packet, 0);
	return 1;
}

static __always_inline int impair(struct __sk_buff *skb, __u64 flags)
{
	__u64 n, lot;

	if (skb->mark == COPY_MARK) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	if (!matches(skb))
		return TC_ACT_UNSPEC;
	n = __sync_fetch_and_add(&counts.seen, 1);
	if ((n >= cfg.lose_from && n < cfg.lose_to) || (__u32)mix(cfg.seed + 4 * n) < cfg.lose) {
		__sync_fetch_and_add(&counts.lost, 1);
		return TC_ACT_SHOT;
	}
	lot = mix(cfg.seed + 4 * n + 1);
	if ((__u32)lot < cfg.corrupt && skb->len > ETH_HLEN) {
		// One bit behind the Ethernet header flips; checksums stay as they were.
		__u32 at = ETH_HLEN + (__u32)(lot >> 32) % (skb->len - ETH_HLEN);
		__u8 byte;

		if (!bpf_skb_load_bytes(skb, at, &byte, 1)) {
			byte ^= 1 << (lot >> 61);
			if (!bpf_skb_store_bytes(skb, at, &byte, 1, 0))
				__sync_fetch_and_add(&counts.corrupted, 1);
		}
	}
	if ((__u32)mix(cfg.seed + 4 * n + 2) < cfg.duplicate) {
		__u32 mark = skb->mark;

		skb->mark = COPY_MARK;
		if (!bpf_clone_redirect(skb, skb->ifindex, flags))
			__sync_fetch_and_add(&counts.duplicated, 1);
		skb->mark = mark;
	}
	if ((__u32)mix(cfg.seed + 4 * n + 3) < cfg.reorder && hold(skb)) {
		__sync_fetch_and_add(&counts.reordered, 1);
		return TC_ACT_SHOT;
	}
	return TC_ACT_UNSPEC;
}

SEC("classifier")
int labkit_ingress(struct __sk_buff *skb)
{
	return impair(skb, BPF_F_INGRESS);
}

SEC("classifier")
int labkit_egress(struct __sk_buff *skb)
{
	return impair(skb, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
