/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The worker's tcx half: delivery to an endpoint, and what an endpoint sends: steps R1 to R6 of docs/worker-path.md. */
#pragma once
#include "worker.h"

#define TCX_NEXT -1
#define TCX_DROP 2
#define W_PASS 0xfe
#define SDROP(REASON) OUT(TCX_DROP, REASON)
#define SNEXT(REASON) OUT(W_PASS, REASON)
#define P_ICMP 1
#define P_ICMP6 58
#define PTB_QUOTE 1232
#define FRAG_QUOTE 548
#define TOKEN 1000000000ULL
#ifndef AF_INET6
#define AF_INET6 10
#endif

inline_always long sload(skb_t *c, __u32 off, void *to, __u32 len) { return bpf_skb_load_bytes(c, off, to, len); }

FIND_MSS(find_reply_mss, skb_t, sload)

inline_always void clamp_reply_mss(skb_t *c, __u32 tcp, __u32 largest, __u32 headers)
{
	__u16 old, limit;
	__u32 at = 0;

	if (largest < LEAST_PACKET || !find_reply_mss(c, tcp, &at))
		return;
	if (sload(c, at, &old, 2))
		return;
	limit = largest - headers;
	if (bpf_ntohs(old) <= limit)
		return;
	limit = bpf_htons(limit);
	/* The helper leaves a checksum alone that is still to be made. At an odd offset the word's bytes count the other way round. */
	if ((at - tcp) & 1)
		bpf_l4_csum_replace(c, tcp + 16, (__u16)(old << 8 | old >> 8), (__u16)(limit << 8 | limit >> 8), 2);
	else
		bpf_l4_csum_replace(c, tcp + 16, old, limit, 2);
	bpf_skb_store_bytes(c, at, &limit, 2, 0);
}

/* A frame that the worker took out of its outer header goes to its endpoint. */
inline_always int deliver_frame(skb_t *c)
{
	struct w_mark *m = (void *)(long)c->data_meta;
	struct bpf_redir_neigh hop = { .nh_family = AF_INET6 };
	struct w_endpoint *to;
	__u32 ifindex;

	if ((void *)(m + 1) > (void *)(long)c->data || m->mark != W_MARK)
		return TCX_NEXT;
	to = find_endpoint(m->endpoint);
	ifindex = to ? READ_ONCE(to->ifindex) : 0;
	if (!to || !ifindex) {
		count_reason(WR_NO_ENDPOINT);
		return TCX_DROP;
	}
	count_reason(WR_DELIVERED);
	if (to->kind == W_KIND_VETH)
		return bpf_redirect_peer(ifindex, 0);
	__builtin_memcpy(hop.ipv6_nh, to->next_hop, 16);
	return bpf_redirect_neigh(ifindex, &hop, sizeof hop, 0);
}

inline_always int take_token(const struct w_params *p)
{
	struct w_bucket *b = find_bucket();
	__u64 now, passed, full;

	if (!b || !p->icmp_rate)
		return 0;
	full = p->icmp_rate * TOKEN;
	now = bpf_ktime_get_coarse_ns();
	passed = now - b->last_ns;
	if (!b->last_ns || passed >= TOKEN)
		b->tokens = full;
	else
		b->tokens += passed * p->icmp_rate;
	if (b->tokens > full)
		b->tokens = full;
	b->last_ns = now ? now : 1;
	if (b->tokens < TOKEN)
		return 0;
	b->tokens -= TOKEN;
	return 1;
}

inline_always __u16 fold64(__s64 sum)
{
	__u64 s = sum;

	s = (s & 0xffffffff) + (s >> 32);
	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return ~s;
}

inline_always void turn_macs(skb_t *c)
{
	__u8 m[12], t[12];

	if (bpf_skb_load_bytes(c, 0, m, 12))
		return;
	__builtin_memcpy(t, m + 6, 6);
	__builtin_memcpy(t + 6, m, 6);
	bpf_skb_store_bytes(c, 0, t, 12, 0);
}

/* The packet becomes the Packet Too Big about itself (RFC 4443 section 3.2), from this node's own address. */
subprogram int reply_too_big(skb_t *c, __u32 mtu)
{
	__u32 head[4] = {}, *w;
	__u8 vip[16];
	__s64 sum;
	void *d, *e;
	int i;

	if (sload(c, ETH_HLEN + 8, vip, 16))
		return SDROP(WR_INTERNAL);
	if (bpf_skb_change_tail(c, ETH_HLEN + PTB_QUOTE, 0) || bpf_skb_adjust_room(c, 48, BPF_ADJ_ROOM_MAC, 0) ||
	    bpf_skb_pull_data(c, ETH_HLEN + 48 + PTB_QUOTE))
		return SDROP(WR_TOO_BIG_SILENT);
	d = (void *)(long)c->data;
	e = (void *)(long)c->data_end;
	if (d + ETH_HLEN + 48 + PTB_QUOTE > e)
		return SDROP(WR_TOO_BIG_SILENT);
	w = d + ETH_HLEN;
	w[0] = bpf_htonl(0x60000000);
	w[1] = bpf_htonl((8 + PTB_QUOTE) << 16 | P_ICMP6 << 8 | 64);
	for (i = 0; i < 16; i++) {
		*(__u8 *)(d + ETH_HLEN + 8 + i) = worker_cfg.source[i];
		*(__u8 *)(d + ETH_HLEN + 24 + i) = vip[i];
	}
	w[10] = bpf_htonl(2 << 24);
	w[11] = bpf_htonl(mtu);
	head[0] = bpf_htonl(8 + PTB_QUOTE);
	head[1] = bpf_htonl(P_ICMP6);
	head[2] = w[10];
	head[3] = w[11];
	/* The helper sums 512 bytes at most. */
	sum = bpf_csum_diff(0, 0, head, 16, 0);
	sum = bpf_csum_diff(0, 0, d + ETH_HLEN + 8, 32, sum);
	sum = bpf_csum_diff(0, 0, d + ETH_HLEN + 48, 512, sum);
	sum = bpf_csum_diff(0, 0, d + ETH_HLEN + 48 + 512, 512, sum);
	sum = bpf_csum_diff(0, 0, d + ETH_HLEN + 48 + 1024, PTB_QUOTE - 1024, sum);
	*(__u16 *)(d + ETH_HLEN + 42) = fold64(sum);
	turn_macs(c);
	return OUT(bpf_redirect(c->ifindex, 0), WR_PACKET_TOO_BIG);
}

/* The same for IPv4 (RFC 792, RFC 1191). A node without IPv4 speaks as 192.0.0.8 (RFC 7600 section 4.8). */
subprogram int reply_fragmentation_needed(skb_t *c, __u32 mtu)
{
	__u32 vip, *w;
	__s64 sum;
	void *d, *e;

	if (sload(c, ETH_HLEN + 12, &vip, 4))
		return SDROP(WR_INTERNAL);
	if (bpf_skb_change_tail(c, ETH_HLEN + FRAG_QUOTE, 0) || bpf_skb_adjust_room(c, 28, BPF_ADJ_ROOM_MAC, 0) ||
	    bpf_skb_pull_data(c, ETH_HLEN + 28 + FRAG_QUOTE))
		return SDROP(WR_TOO_BIG_SILENT);
	d = (void *)(long)c->data;
	e = (void *)(long)c->data_end;
	if (d + ETH_HLEN + 28 + FRAG_QUOTE > e)
		return SDROP(WR_TOO_BIG_SILENT);
	w = d + ETH_HLEN;
	w[0] = bpf_htonl(0x45000000 | (28 + FRAG_QUOTE));
	w[1] = 0;
	w[2] = bpf_htonl(64 << 24 | P_ICMP << 16);
	w[3] = bpf_htonl(0xc0000008);
	w[4] = vip;
	*(__u16 *)(d + ETH_HLEN + 10) = fold64(bpf_csum_diff(0, 0, (void *)w, 20, 0));
	w[5] = bpf_htonl(3 << 24 | 4 << 16);
	w[6] = bpf_htonl(mtu & 0xffff);
	sum = bpf_csum_diff(0, 0, d + ETH_HLEN + 20, 512, 0);
	sum = bpf_csum_diff(0, 0, d + ETH_HLEN + 20 + 512, 8 + FRAG_QUOTE - 512, sum);
	*(__u16 *)(d + ETH_HLEN + 22) = fold64(sum);
	turn_macs(c);
	return OUT(bpf_redirect(c->ifindex, 0), WR_FRAGMENTATION_NEEDED);
}

/* R6: the reply travels to the edge in an outer header whose source is the endpoint's SID. */
inline_always int send_to_edge(skb_t *c, const struct w_params *p, const struct w_binding *b, __u32 first, __u32 length)
{
	__u32 hash = bpf_get_hash_recalc(c), ifindex = p->fabric_ifindex;
	struct {
		__u32 first;
		__be16 payload;
		__u8 next, hops;
		__u8 src[16], dst[16];
	} outer = {};
	__be16 ipv6 = bpf_htons(ETH_P_IPV6);
	__u64 hi;
	int v6 = c->protocol == bpf_htons(ETH_P_IPV6);

	outer.first = bpf_htonl(0x60000000 | (hash & 0xfffff)) | (v6 ? first & bpf_htonl(0x0ff00000) : bpf_htonl((bpf_ntohl(first) & 0x00ff0000) << 4));
	outer.payload = bpf_htons(length);
	outer.next = v6 ? P_IPV6 : P_IPIP;
	outer.hops = 64;
	/* Read as the volatile it is: a copy that casts that away is folded into the zeros it is compiled with. */
	hi = worker_cfg.locator_hi;
	__builtin_memcpy(outer.src, &hi, 8);
	__builtin_memcpy(outer.src + 8, b->sid, 2);
	outer.src[14] = hash >> 24;
	outer.src[15] = hash >> 16;
	__builtin_memcpy(outer.dst, p->reply_sid, 16);
	if (bpf_skb_adjust_room(c, W_ENCAP_LEN, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return SDROP(WR_INTERNAL);
	if (bpf_skb_store_bytes(c, ETH_HLEN, &outer, sizeof outer, 0) || bpf_skb_store_bytes(c, 12, &ipv6, 2, 0))
		return SDROP(WR_INTERNAL);
	return OUT(bpf_redirect_neigh(ifindex, 0, 0, 0), WR_REPLY_EDGE);
}

/* The VIP that a packet of the endpoint's own address is a reply of: its binding's index, or -1. */
inline_always long translated(skb_t *c, __u32 endpoint, int v6, __u32 l4, __u8 proto)
{
	struct w_port_key k = { .endpoint = endpoint, .proto = proto, .family = v6 ? 6 : 4 };
	__u32 *found;

	if ((proto != P_TCP && proto != P_UDP) || sload(c, l4, k.port, 2))
		return -1;
	found = find_service(&k);
	return found ? (long)*found : -1;
}

/* Puts the VIP in place of the endpoint's own address as source; ports stay. The helpers know of checksums still to be made. */
subprogram int translate_out(skb_t *c, const struct w_binding *b, __u32 l4, __u32 proto)
{
	__u32 field = l4 + (proto == P_TCP ? 16 : 6), i, words = 4, first = 0, offset = ETH_HLEN + 8;
	__u64 flags = BPF_F_PSEUDO_HDR | 4 | (proto == P_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	const __u32 *from, *to;

	if (!b)
		return -1;
	from = (const __u32 *)b->backend;
	to = (const __u32 *)b->vip;
	if (c->protocol == bpf_htons(ETH_P_IP)) {
		first = 3;
		offset = ETH_HLEN + 12;
		if (bpf_l3_csum_replace(c, ETH_HLEN + 10, from[3], to[3], 4))
			return -1;
	}
	for (i = 0; i < words; i++)
		if (i >= first && from[i] != to[i] && bpf_l4_csum_replace(c, field, from[i], to[i], flags))
			return -1;
	if (first)
		return bpf_skb_store_bytes(c, offset, &to[3], 4, 0);
	return bpf_skb_store_bytes(c, offset, to, 16, 0);
}

/* What an endpoint sends. */
inline_always int reply(skb_t *c)
{
	struct w_source_key k = {};
	__u32 h[10], *found, length, headers, tcp, segment, first, bytes;
	struct w_binding *b;
	struct w_params *p;
	__u8 proto;
	int v6, df = 0, fragment = 0;
	__u32 index;

	/* R1 */
	found = find_port(c->ifindex);
	if (!found)
		return SDROP(WR_NO_ENDPOINT);
	k.endpoint = *found;
	v6 = c->protocol == bpf_htons(ETH_P_IPV6);
	if (!v6 && c->protocol != bpf_htons(ETH_P_IP))
		return SNEXT(WR_REPLY_NOT_IP);
	/* R2 */
	if (v6) {
		if (sload(c, ETH_HLEN, h, 40))
			return SDROP(WR_REPLY_TRUNCATED);
		/* Link-local and unspecified sources never leave the link. */
		if ((h[2] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000) || !(h[2] | h[3] | h[4] | h[5]))
			return SNEXT(WR_REPLY_LOCAL);
		if (!(h[2] | h[3]) && h[4] == bpf_htonl(0xffff))
			return SDROP(WR_SPOOFED_SOURCE);
		__builtin_memcpy(k.addr, h + 2, 16);
		length = 40 + (bpf_ntohl(h[1]) >> 16);
		proto = bpf_ntohl(h[1]) >> 8;
		tcp = ETH_HLEN + 40;
		headers = 60;
		/* The region's block is not an endpoint's to send to. */
		if (!((*(__u64 *)(h + 6) ^ worker_cfg.locator_hi) << 16))
			return SDROP(WR_INTO_BLOCK);
	} else {
		if (sload(c, ETH_HLEN, h, 20))
			return SDROP(WR_REPLY_TRUNCATED);
		k.addr[10] = 0xff;
		k.addr[11] = 0xff;
		__builtin_memcpy(k.addr + 12, h + 3, 4);
		length = bpf_ntohl(h[0]) & 0xffff;
		proto = bpf_ntohl(h[1]) & 0x1fff ? 0 : (bpf_ntohl(h[2]) >> 16) & 0xff;
		df = bpf_ntohl(h[1]) & 0x4000;
		fragment = bpf_ntohl(h[1]) & 0x3fff;
		tcp = ETH_HLEN + (bpf_ntohl(h[0]) >> 24 & 0xf) * 4;
		headers = 40;
	}
	/* R3 */
	found = find_source(&k);
	if (!found)
		return SDROP(WR_SPOOFED_SOURCE);
	index = *found;
	if (index == W_OWN_ADDRESS) {
		long service = fragment ? -1 : translated(c, k.endpoint, v6, tcp, proto);

		if (service < 0)
			return SNEXT(WR_REPLY_OWN);
		index = service;
		b = find_binding(index);
		if (!b || translate_out(c, b, tcp, proto))
			return SDROP(WR_INTERNAL);
	}
	b = find_binding(index);
	p = find_params();
	if (!b || !p)
		return SDROP(WR_INTERNAL);
	/* R4 */
	first = h[0];
	bytes = c->len - ETH_HLEN;
	if (proto == P_TCP)
		clamp_reply_mss(c, tcp, p->from_pod_max, headers);
	/* R5 */
	if (p->reply != W_REPLY_EDGE) {
		count_packet(find_out(index), bytes);
		return SNEXT(WR_REPLY_DIRECT);
	}
	/* A segment that hardware is still to cut is measured as it will be cut. */
	segment = c->gso_size ? c->gso_size + headers + 20 : length;
	if (c->gso_size && segment > length)
		segment = length;
	if (segment + W_ENCAP_LEN > p->fabric_mtu) {
		if (!v6 && !df)
			return SDROP(WR_TOO_BIG_SILENT);
		if (p->fabric_mtu < LEAST_PACKET + W_ENCAP_LEN)
			return SDROP(WR_TOO_BIG_SILENT);
		if (!take_token(p))
			return SDROP(WR_RATE_LIMITED);
		return v6 ? reply_too_big(c, p->fabric_mtu - W_ENCAP_LEN) : reply_fragmentation_needed(c, p->fabric_mtu - W_ENCAP_LEN);
	}
	count_packet(find_out(index), bytes);
	/* R6 */
	return send_to_edge(c, p, b, first, length);
}
